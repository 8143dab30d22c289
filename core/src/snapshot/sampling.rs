//! Poisson sampling of small blocks: the probability that a block is recorded, and its weight.

/// The longest sampling interval, 1 GiB.
pub const MAX_INTERVAL: u64 = 1 << 30;
/// One block in the fixed-point numbers of [`Sampling::parts`].
const ONE: u64 = 1 << 16;

/// How the blocks of a device were sampled, and the weight of each recorded block by its size.
///
/// Sampling points form a Poisson process over the allocated bytes, one per interval on average. A block is recorded if
/// it contains a point. A block of size s is recorded with probability p = 1 − exp(−s / interval) and counts for 1 / p
/// blocks of its size, which makes sums over recorded blocks unbiased estimates. Blocks of at least the interval are
/// always recorded and count for themselves. Where the true sum is counted as well, weights are scaled to it: see
/// [`DeviceSnapshot::peak_weights`](super::DeviceSnapshot::peak_weights).
///
/// The weights here depend on the size alone, and their arithmetic is the same on every machine. So any grouping of the
/// same blocks adds up to the same total, to the byte.
///
/// ```
/// # use memtrace_core as memtrace;
/// use memtrace::snapshot::Sampling;
/// let sampling = Sampling::every(512 << 10);
/// assert_eq!(sampling.bytes(1 << 20), 1 << 20);
/// assert_eq!(sampling.bytes(1024), 524_800);
/// assert!((sampling.blocks(1024) - 512.5).abs() < 0.01);
/// assert_eq!(Sampling::default().bytes(1024), 1024);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sampling {
    /// 0 records everything.
    interval: u64,
}

impl Sampling {
    /// Sampling with this interval, at most 1 GiB; an interval of 0 records every block.
    pub const fn every(interval: u64) -> Self {
        Self { interval: if interval < MAX_INTERVAL { interval } else { MAX_INTERVAL } }
    }

    /// Are small blocks sampled?
    #[inline]
    pub fn is_on(self) -> bool {
        self.interval > 0
    }

    /// The sampling interval in bytes; `None` if every block is recorded.
    #[inline]
    pub fn interval(self) -> Option<u64> {
        self.is_on().then_some(self.interval)
    }

    /// Is a block of this size sampled rather than always recorded?
    #[inline]
    pub fn is_sampled(self, size: u64) -> bool {
        size < self.interval
    }

    /// The probability that a block of this size is recorded.
    pub fn probability(self, size: u64) -> f64 {
        if self.is_sampled(size) { size as f64 / self.interval as f64 * self.share(size) } else { 1.0 }
    }

    /// The bytes that a recorded block of this size counts for.
    #[inline]
    pub fn bytes(self, size: u64) -> u64 {
        if self.is_sampled(size) { self.estimate(size) } else { size }
    }

    /// The number of blocks that a recorded block of this size counts for.
    pub fn blocks(self, size: u64) -> f64 {
        self.parts(size) as f64 / ONE as f64
    }

    /// [`blocks`](Self::blocks) in fixed point, so that sums do not depend on the order.
    #[inline]
    pub fn parts(self, size: u64) -> u64 {
        if self.is_sampled(size) { self.estimated_parts(size) } else { ONE }
    }

    /// A sum of [`parts`](Self::parts) as a rounded number of blocks.
    #[inline]
    pub const fn whole(parts: u64) -> u64 {
        parts.saturating_add(ONE / 2) / ONE
    }

    /// size / p, which is the interval divided by (1 − exp(−x)) / x for x = size / interval. This function is not
    /// inlined, so that recordings without sampling stay fast.
    #[cold]
    #[inline(never)]
    fn estimate(self, size: u64) -> u64 {
        // Blocks of 0 bytes are never sampled.
        if size == 0 { 0 } else { (self.interval as f64 / self.share(size)).round() as u64 }
    }

    #[cold]
    #[inline(never)]
    fn estimated_parts(self, size: u64) -> u64 {
        if size == 0 {
            ONE
        } else {
            (self.interval as f64 / self.share(size) * ONE as f64 / size as f64).round() as u64
        }
    }

    /// (1 − exp(−x)) / x for x = size / interval < 1, by its power series. The system library's `exp` is not used: its
    /// last bit differs between machines, and captures are read on other machines.
    fn share(self, size: u64) -> f64 {
        let x = size as f64 / self.interval as f64;
        SERIES.iter().rev().fold(0.0, |sum, factor| sum * -x + factor)
    }
}

/// 1 / (k + 1)! for each k; later terms are below the precision of f64.
const SERIES: [f64; 18] = {
    let (mut factors, mut k) = ([1.0; 18], 1);
    while k < factors.len() {
        factors[k] = factors[k - 1] / (k + 1) as f64;
        k += 1;
    }
    factors
};

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 512 << 10;

    #[test]
    fn a_block_stands_for_as_many_as_it_takes_for_one_to_be_recorded() {
        let sampling = Sampling::every(INTERVAL);
        for size in [1, 7, 64, 1000, 4096, 100_000, INTERVAL / 2, INTERVAL - 1] {
            let p = -(-(size as f64) / INTERVAL as f64).exp_m1();
            assert!((sampling.probability(size) / p - 1.0).abs() < 1e-12, "{size}");
            assert!((sampling.bytes(size) as f64 * p - size as f64).abs() <= p / 2.0 + 1e-9, "{size}");
            assert!((sampling.blocks(size) * p - 1.0).abs() < 1e-5, "{size}");
        }
    }

    #[test]
    fn large_blocks_stand_for_themselves_and_without_sampling_all_do() {
        for (sampling, size) in [(Sampling::every(INTERVAL), INTERVAL), (Sampling::default(), 1)] {
            assert_eq!((sampling.bytes(size), sampling.parts(size)), (size, ONE));
            assert!((sampling.probability(size) - 1.0).abs() < f64::EPSILON);
        }
        assert_eq!((Sampling::every(INTERVAL).bytes(0), Sampling::every(u64::MAX).interval()), (0, Some(MAX_INTERVAL)));
        assert_eq!((Sampling::whole(3 * ONE), Sampling::whole(ONE / 2), Sampling::whole(ONE / 2 - 1)), (3, 1, 0));
    }

    /// Files contain sums of these numbers, so every implementation must compute the same ones.
    #[test]
    fn the_estimates_are_the_same_on_every_machine() {
        let sampling = Sampling::every(INTERVAL);
        let found = [1, 100, 4096, 65_536, 300_000, INTERVAL - 1].map(|size| sampling.bytes(size));
        assert_eq!(found, [524_289, 524_338, 526_339, 557_738, 688_516, 829_411]);
    }
}
