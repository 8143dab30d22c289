//! What each block stands for where the bytes of all are known: they add up to the byte.

use std::iter::Sum;
use std::ops::AddAssign;

use super::{Block, DeviceSnapshot, Sampling};

/// What recorded blocks stand for: themselves, or, in a sample, all those that were allocated. Sums of weights are exact, in
/// whatever order they are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// How many bytes.
    pub bytes: u64,
    /// How many blocks, in the fixed-point numbers of [`Sampling::parts`].
    parts: u64,
}

impl Weight {
    /// How many blocks, rounded.
    pub fn blocks(self) -> u64 {
        Sampling::whole(self.parts)
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
    /// What a recorded block of this size stands for, by its size alone.
    #[inline]
    pub fn weight(self, size: u64) -> Weight {
        Weight { bytes: self.bytes(size), parts: self.parts(size) }
    }
}

impl DeviceSnapshot {
    /// The mean number of bytes between the points of the sample; `None` if every block was recorded.
    pub fn sample_interval(&self) -> Option<u64> {
        self.sampling.interval()
    }

    /// Were only some of the small blocks recorded?
    pub fn is_sample(&self) -> bool {
        self.sampling.is_on()
    }

    /// What a record in the log stands for, by the size of its block.
    #[inline]
    pub fn weight(&self, size: u64) -> Weight {
        self.sampling.weight(size)
    }

    /// The peak's blocks with what each stands for: with [`Peak::not_recorded`](super::Peak::not_recorded) their bytes
    /// add up to [`Peak::bytes`](super::Peak::bytes).
    ///
    /// A block of a sample has its share of the bytes that were counted in small blocks, in proportion to what it stands for
    /// by its size ([`Sampling::bytes`]); any other block has its size.
    pub fn peak_weights(&self) -> impl Iterator<Item = (&Block, Weight)> {
        let peak = &self.peak;
        weights(self.sampling, &peak.blocks, peak.bytes.saturating_sub(peak.not_recorded))
    }

    /// The same of what is live now: with [`not_recorded`](Self::not_recorded) the bytes add up to the current
    /// [`allocated_bytes`](super::MemoryStats::allocated_bytes).
    pub fn live_weights(&self) -> impl Iterator<Item = (&Block, Weight)> {
        let now = self.stats.allocated_bytes.current;
        weights(self.sampling, &self.live, now.saturating_sub(self.not_recorded))
    }

    /// Could any of these blocks, which are the peak's or those that are live, stand for the small ones that were there before
    /// the recording? Without that, what is not recorded may as well be what the sample missed.
    pub(crate) fn stand_for_small(&self, blocks: &[Block]) -> bool {
        !self.sampling.is_on() || blocks.iter().any(|block| self.sampling.is_sampled(block.size))
    }

    /// Does this block of the peak stand for itself alone?
    pub(crate) fn is_exact(&self, block: &Block) -> bool {
        !self.sampling.is_sampled(block.size)
    }

    /// Bytes live now: of a sample as the sizes of the recorded blocks alone have it, as the log and all that is
    /// worked out from it. That is never less than what is to be undone of it.
    pub(crate) fn live_by_sizes(&self) -> u64 {
        if !self.sampling.is_on() {
            return self.stats.allocated_bytes.current;
        }
        let bytes = self.live.iter().map(|block| self.sampling.bytes(block.size));
        bytes.fold(self.not_recorded, u64::saturating_add)
    }
}

/// What `total` bytes are in these blocks.
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
        // All that is due up to here, so that what is rounded off is not lost.
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
