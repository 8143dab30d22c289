//! Numbers and bytes of blocks, of a sample as of all.

use crate::snapshot::Sampling;

/// Blocks, or what recorded ones stand for: how many, in parts of one, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
}

impl Flow {
    /// A block that stands for itself.
    #[inline]
    pub(super) fn one(size: u64) -> Self {
        Self { parts: Sampling::default().parts(size), bytes: size }
    }

    /// What a block of this size stands for.
    pub(super) fn of(sampling: Sampling, size: u64) -> Self {
        Self { parts: sampling.parts(size), bytes: sampling.bytes(size) }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.parts += more.parts;
        self.bytes += more.bytes;
    }

    pub(super) fn subtract(&mut self, less: Self) {
        self.parts = self.parts.saturating_sub(less.parts);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}
