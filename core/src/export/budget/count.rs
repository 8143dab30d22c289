//! Writing to nowhere, as far as it fits.

use std::io::{self, Write};

/// Counts bytes, and fails if there are too many.
#[derive(Debug)]
pub(in crate::export) struct Count {
    taken: u64,
    max: u64,
}

impl Default for Count {
    /// Without a limit.
    fn default() -> Self {
        Self::up_to(u64::MAX)
    }
}

impl Count {
    pub(super) fn up_to(max: u64) -> Self {
        Self { taken: 0, max }
    }

    #[inline]
    pub(in crate::export) fn take(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    pub(in crate::export) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_over(&self) -> bool {
        self.taken > self.max
    }

    /// # Errors
    /// If there were too many.
    pub(in crate::export) fn check(&self) -> io::Result<()> {
        if self.is_over() { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    }
}

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.len());
        self.check().map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
