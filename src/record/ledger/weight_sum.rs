//! Weighted number and bytes of blocks. Under sampling, a recorded block stands for several blocks.

use memtrace_core::snapshot::Sampling;

/// The number of blocks as a fixed-point number (see [`Sampling::parts`]), and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WeightSum {
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
}

impl WeightSum {
    /// A block of weight 1.
    #[inline]
    pub(in crate::record) fn one(size: u64) -> Self {
        Self { parts: Sampling::default().parts(size), bytes: size }
    }

    /// The weight of a recorded block of this size.
    pub(in crate::record) fn of(sampling: Sampling, size: u64) -> Self {
        Self { parts: sampling.parts(size), bytes: sampling.bytes(size) }
    }

    pub(in crate::record) fn add(&mut self, more: Self) {
        self.parts += more.parts;
        self.bytes += more.bytes;
    }

    pub(in crate::record) fn subtract(&mut self, less: Self) {
        self.parts = self.parts.saturating_sub(less.parts);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}
