//! Counted totals under sampling. All bytes are counted. Large blocks are recorded; of the small ones (below the
//! sampling interval), only some are.

/// One device's live bytes at one moment. Only blocks of at least the threshold count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// All counted bytes.
    pub(crate) all: u64,
    /// Bytes in recorded large blocks.
    pub(crate) large: u64,
    /// Bytes in large blocks that are not recorded: those from before the recording.
    pub(crate) large_before: u64,
    /// Weight of the recorded small blocks, computed from their sizes.
    pub(crate) estimate: u64,
}

impl Totals {
    /// Bytes that no recorded block accounts for. At most `small_before` bytes of the counted small blocks are from
    /// before the recording and so not in the sample. So the estimate cannot be less than the counted small bytes
    /// minus `small_before`, nor more than the counted small bytes.
    pub(crate) fn not_recorded(&self, small_before: u64) -> u64 {
        let (others, small) = (self.all.saturating_sub(self.large), self.small());
        let least = small.saturating_sub(small_before);
        let sample = if self.estimate == 0 { 0 } else { self.estimate.clamp(least, small) };
        others.saturating_sub(sample)
    }

    /// Counted bytes in small blocks.
    pub(crate) fn small(&self) -> u64 {
        self.all.saturating_sub(self.large).saturating_sub(self.large_before)
    }

    /// The counts of the same moment, with these bytes moved from recorded to unrecorded.
    pub(crate) fn without(&self, large: u64, estimate: u64) -> Self {
        Self {
            all: self.all,
            large: self.large.saturating_sub(large),
            large_before: self.large_before.saturating_add(large),
            estimate: self.estimate.saturating_sub(estimate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 1000;
    const BEFORE: u64 = 500;

    /// Counts with these small bytes, and this estimate of them.
    fn census(small: u64, estimate: u64) -> Totals {
        Totals { all: LARGE + BEFORE + small, large: LARGE, large_before: BEFORE, estimate }
    }

    #[test]
    fn the_sample_stands_for_no_more_than_is_counted_and_for_all_that_is_not_from_before() {
        let small_before = |small, estimate| census(small, estimate).not_recorded(70) - BEFORE;
        assert_eq!((small_before(400, 350), small_before(400, 900), small_before(400, 10)), (50, 0, 70));
        assert_eq!((small_before(60, 10), census(400, 10).not_recorded(0)), (50, BEFORE));
    }

    #[test]
    fn without_a_block_of_the_sample_nothing_stands_for_the_small_ones() {
        assert_eq!(census(400, 0).not_recorded(70), BEFORE + 400);
        assert_eq!(census(400, 300).without(0, 300).not_recorded(70), BEFORE + 400);
        assert_eq!(census(400, 400).without(LARGE, 0).not_recorded(0), BEFORE + LARGE);
    }

    /// Counters of several threads are not read at the same instant.
    #[test]
    fn counters_that_do_not_fit_together_are_no_trouble() {
        let odd = Totals { all: 10, large: 20, large_before: 30, estimate: 40 };
        assert_eq!((odd.not_recorded(u64::MAX), odd.without(u64::MAX, u64::MAX).not_recorded(0)), (0, 10));
    }
}
