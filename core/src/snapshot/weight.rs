//! Weights: the bytes and the number of blocks that each recorded block represents. The weights of sampled blocks add
//! up to the counted bytes, to the byte.
//!
//! The largest of many noisy estimates is too high, so a peak of estimated sums would be wrong. That is why a sampled
//! recording counts live bytes exactly. To find the peak, the ledger compares these counts, and the sample only tells
//! how the counted bytes are distributed over the blocks. All sampled blocks together weigh at most the bytes that were
//! counted in small blocks, and at least these bytes minus those of small blocks from before the recording. Shares are
//! rounded cumulatively, so no byte is lost. The records of the log have no counts, so curves and operator calls use
//! the weights that depend on the size alone.

use std::iter::Sum;
use std::ops::AddAssign;

use super::{Block, DeviceSnapshot, Peak, Sampling};

/// What recorded blocks represent: themselves, or in a sample all blocks that they stand for. Sums of weights do not
/// depend on the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weight {
    /// Bytes.
    pub bytes: u64,
    /// Number of blocks in the fixed point of [`Sampling::parts`].
    parts: u64,
}

impl Weight {
    /// Number of blocks, rounded.
    pub fn blocks(self) -> u64 {
        Sampling::whole(self.parts)
    }

    /// The weight minus `less`, but not below 0.
    pub(crate) fn saturating_sub(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), parts: self.parts.saturating_sub(less.parts) }
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.parts = self.parts.saturating_add(more.parts);
    }
}

impl Sum for Weight {
    fn sum<I: Iterator<Item = Self>>(weights: I) -> Self {
        let mut sum = Self::default();
        weights.for_each(|weight| sum += weight);
        sum
    }
}

impl Sampling {
    /// The weight of a recorded block of this size, by its size alone.
    #[inline]
    pub fn weight(self, size: u64) -> Weight {
        Weight { bytes: self.bytes(size), parts: self.parts(size) }
    }
}

impl DeviceSnapshot {
    /// The sampling interval in bytes; `None` if every block was recorded.
    pub fn sample_interval(&self) -> Option<u64> {
        self.sampling.interval()
    }

    /// Were small blocks sampled?
    pub fn is_sample(&self) -> bool {
        self.sampling.is_on()
    }

    /// The weight of a record, by the size of its block.
    #[inline]
    pub fn weight(&self, size: u64) -> Weight {
        self.sampling.weight(size)
    }

    /// The peak's blocks with their weights. Together with [`Peak::not_recorded`](super::Peak::not_recorded) the weights add up
    /// to [`Peak::bytes`](super::Peak::bytes).
    ///
    /// Sampled blocks share the bytes counted in small blocks, in proportion to [`Sampling::bytes`]; any other block has its
    /// size.
    pub fn peak_weights(&self) -> impl Iterator<Item = (&Block, Weight)> {
        self.peak.weights(self.sampling)
    }

    /// The live blocks with their weights. Together with [`not_recorded`](Self::not_recorded) the weights add up to the current
    /// [`allocated_bytes`](super::MemoryStats::allocated_bytes).
    pub fn live_weights(&self) -> impl Iterator<Item = (&Block, Weight)> {
        let now = self.stats.allocated_bytes.current;
        weights(self.sampling, &self.live, now.saturating_sub(self.not_recorded))
    }

    /// Can any of these blocks (the peak's or the live ones) represent small blocks? If no block can, the bytes that
    /// are not recorded may be from before the recording, or the sample may have missed them.
    pub(crate) fn stand_for_small(&self, blocks: &[Block]) -> bool {
        !self.sampling.is_on() || blocks.iter().any(|block| self.sampling.is_sampled(block.size))
    }

    /// Does this block of the peak represent only itself?
    pub(crate) fn is_exact(&self, block: &Block) -> bool {
        !self.sampling.is_sampled(block.size)
    }

    /// Live bytes. In a sample, the blocks have the weights that depend on the size alone, as in the log's totals. So
    /// the total never goes below 0 when the log's records are undone, beginning with the last.
    pub(crate) fn live_by_sizes(&self) -> u64 {
        if !self.sampling.is_on() {
            return self.stats.allocated_bytes.current;
        }
        let bytes = self.live.iter().map(|block| self.sampling.bytes(block.size));
        bytes.fold(self.not_recorded, u64::saturating_add)
    }
}

impl Peak {
    pub(crate) fn weights(&self, sampling: Sampling) -> impl Iterator<Item = (&Block, Weight)> {
        weights(sampling, &self.blocks, self.bytes.saturating_sub(self.not_recorded))
    }
}

/// Distributes `total` bytes over the blocks.
fn weights(sampling: Sampling, blocks: &[Block], total: u64) -> impl Iterator<Item = (&Block, Weight)> {
    let (large, estimate) = blocks.iter().fold((0u128, 0u128), |(large, estimate), block| {
        let bytes = u128::from(sampling.bytes(block.size));
        if sampling.is_sampled(block.size) { (large, estimate + bytes) } else { (large + bytes, estimate) }
    });
    let small = u128::from(total).saturating_sub(large);
    let (mut seen, mut given) = (0, 0);
    blocks.iter().map(move |block| {
        let weight = sampling.weight(block.size);
        if !sampling.is_sampled(block.size) {
            return (block, weight);
        }
        seen += u128::from(weight.bytes);
        // The share is cumulative, so that rounding loses nothing.
        let due = (seen * small).checked_div(estimate).unwrap_or(0);
        let share = due - given;
        given = due;
        (block, Weight { bytes: u64::try_from(share).unwrap_or(u64::MAX), ..weight })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::testing::Story;

    const INTERVAL: u64 = 1024;

    fn blocks(sizes: &[u64]) -> Vec<Block> {
        let mut trace = Story::cpu();
        sizes.iter().enumerate().for_each(|(n, size)| _ = trace.alloc(n, *size));
        trace.device().live
    }

    fn found(sampling: Sampling, sizes: &[u64], total: u64) -> Vec<u64> {
        weights(sampling, &blocks(sizes), total).map(|(_, weight)| weight.bytes).collect()
    }

    #[test]
    fn blocks_of_one_size_share_alike_and_large_ones_have_their_own() {
        let sampling = Sampling::every(INTERVAL);
        assert_eq!(found(sampling, &[100, 5000, 100, 100], 5000 + 30), [10, 5000, 10, 10]);
        assert_eq!(found(sampling, &[100, 100, 100], 10), [3, 3, 4]);
        assert_eq!(found(sampling, &[5000, 100], 4000), [5000, 0]);
        assert_eq!(found(Sampling::default(), &[100, 5000], 7), [100, 5000]);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_byte_in_proportion_to_the_estimates(
            sizes in prop::collection::vec(1..3 * INTERVAL, 0..40),
            small in 0u64..1 << 40,
        ) {
            let sampling = Sampling::every(INTERVAL);
            let is_small = |size: &&u64| sampling.is_sampled(**size);
            let large: u64 = sizes.iter().filter(|size| !is_small(size)).sum();
            let estimate: u64 = sizes.iter().filter(is_small).map(|size| sampling.bytes(*size)).sum();
            let found = found(sampling, &sizes, large + small);
            let all: u64 = found.iter().sum();
            prop_assert_eq!(all, large + if estimate > 0 { small } else { 0 });
            for (size, share) in sizes.iter().zip(found) {
                let exact = small as f64 * sampling.bytes(*size) as f64 / estimate as f64;
                prop_assert!(!is_small(&size) || (share as f64 - exact).abs() < 1.01 + exact * 1e-9);
                prop_assert!(is_small(&size) || share == *size);
            }
        }
    }
}
