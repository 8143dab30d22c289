//! High-water mark: the exact peak and the blocks live at it, in constant time per event.
//!
//! A block was live at the peak if it was allocated at or before the peak, and is still live or was freed since. So it
//! is enough to keep the blocks freed since the last new maximum. Each new maximum clears that list, so the list never
//! has more blocks than were live at the peak. The peak is exact even if the log has overwritten its records.

use memtrace_core::snapshot::Block;

use super::super::memory::{OwnVec, System, try_push};
use super::live::LiveBlock;
use super::packed::{Packed, seq_of};

#[derive(Debug)]
#[repr(C)]
pub(crate) struct PeakTracker {
    /// The maximum so far. Its total is at least 0, which is the total at the start of the recording.
    pub(crate) at: PeakMoment,
    /// Packed blocks of the peak that were freed since.
    freed: OwnVec<Packed<4>>,
    /// Bytes below the threshold at the peak.
    pub(crate) below_threshold: u64,
    /// Blocks of the peak that were freed since, and that cannot be packed.
    freed_whole: OwnVec<Block>,
    /// Bytes of freed blocks that were not kept, for lack of memory.
    pub(crate) lost: u64,
    /// The part of `lost` that is the weight of sampled blocks.
    pub(crate) lost_of_sample: u64,
    /// How often the peak or its blocks changed otherwise than by a new maximum. A reader of the log cannot know that.
    pub(crate) corrections: u64,
}

/// A moment that is the maximum, or a candidate for it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PeakMoment {
    /// Bytes relative to the start of the recording.
    pub(crate) total: i64,
    /// Log position of the last alloc before this moment.
    pub(crate) seq: u64,
    pub(crate) time_ns: u64,
    /// Bytes of blocks from before the recording that had been freed by then.
    pub(crate) unknown_freed: u64,
}

impl PeakTracker {
    pub(crate) const fn new(below_threshold: u64) -> Self {
        Self {
            at: PeakMoment { total: 0, seq: 0, time_ns: 0, unknown_freed: 0 },
            below_threshold,
            freed: OwnVec::new_in(System),
            freed_whole: OwnVec::new_in(System),
            lost: 0,
            lost_of_sample: 0,
            corrections: 0,
        }
    }

    /// Restarts with this moment as the maximum.
    pub(crate) fn restart(&mut self, now: PeakMoment, below_threshold: u64) {
        self.forget_freed();
        self.at = now;
        self.below_threshold = below_threshold;
    }

    /// Called after each alloc. Returns whether `now` is a new maximum, which it is not if the totals are equal. Calls
    /// `below_threshold` only for a new maximum.
    #[inline]
    pub(crate) fn after_alloc(&mut self, now: PeakMoment, below_threshold: impl FnOnce() -> u64) -> bool {
        let is_new = now.total > self.at.total;
        if is_new {
            self.at = now;
            self.below_threshold = below_threshold();
            self.forget_freed();
        }
        is_new
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn after_free(&mut self, held: &LiveBlock, bytes: u64) {
        let kept = held.seq() > self.at.seq
            || match held {
                LiveBlock::Packed(words) => try_push(&mut self.freed, *words),
                LiveBlock::Whole(block) => try_push(&mut self.freed_whole, *block),
            };
        if !kept {
            self.lose(held.size(), bytes);
        }
    }

    /// Undoes the free of a block. Returns whether the block was live at the peak.
    pub(crate) fn take_back(&mut self, block: &Block, bytes: u64) -> bool {
        if block.raw_seq() > self.at.seq {
            return false;
        }
        if let Some(at) = self.freed.iter().rposition(|words| seq_of(words) == block.raw_seq()) {
            self.freed.swap_remove(at);
            return true;
        }
        if let Some(at) = self.freed_whole.iter().rposition(|freed| freed.seq == block.seq) {
            self.freed_whole.swap_remove(at);
            return true;
        }
        let was_lost = self.lost >= bytes && bytes > 0;
        if was_lost {
            self.lost -= bytes;
            self.lost_of_sample = self.lost_of_sample.saturating_sub(if bytes > block.size { bytes } else { 0 });
        }
        was_lost
    }

    /// Moves the peak to an earlier moment. `freed` are the blocks of that moment that were freed since. `lost` counts
    /// the bytes of further such blocks, which could not be kept for lack of memory.
    pub(crate) fn move_to(
        &mut self,
        moment: PeakMoment,
        freed: OwnVec<Block>,
        lost: u64,
        below_threshold: impl FnOnce() -> u64,
    ) {
        if (moment.seq, moment.time_ns) != (self.at.seq, self.at.time_ns) {
            self.below_threshold = below_threshold();
        }
        self.at = moment;
        self.forget_freed();
        self.freed_whole = freed;
        self.lost = lost;
    }

    #[cold]
    fn lose(&mut self, size: u64, bytes: u64) {
        self.corrections += 1;
        self.lost += bytes;
        // Only a sampled block weighs more than its size.
        self.lost_of_sample += if bytes > size { bytes } else { 0 };
    }

    fn forget_freed(&mut self) {
        self.freed.clear();
        self.freed_whole.clear();
        self.lost = 0;
        self.lost_of_sample = 0;
    }

    /// The peak's blocks that were freed since.
    pub(crate) fn freed(&self) -> impl Iterator<Item = Block> {
        let packed = self.freed.iter().map(|words| LiveBlock::Packed(*words).block());
        packed.chain(self.freed_whole.iter().copied())
    }

    /// Alloc positions of the peak's freed blocks, sorted. Empty if there is no memory for them.
    pub(crate) fn freed_since(&self) -> OwnVec<u64> {
        let mut numbers = OwnVec::new_in(System);
        if numbers.try_reserve_exact(self.freed.len() + self.freed_whole.len()).is_ok() {
            numbers.extend(self.freed().map(|block| block.raw_seq()));
            numbers.sort_unstable();
        }
        numbers
    }

    /// The live set at the peak in the order of allocation. Blocks counted in `lost` are missing.
    pub(crate) fn live_set(&self, live: impl Iterator<Item = Block>) -> Vec<Block> {
        let survivors = live.filter(|block| block.raw_seq() <= self.at.seq);
        let mut blocks: Vec<Block> = survivors.chain(self.freed()).collect();
        blocks.sort_unstable_by_key(|block| block.seq);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::record::scarce::with_memory_for;

    fn block(seq: u64, size: u64) -> Block {
        Block { address: seq, size, seq: NonZeroU64::new(seq), ..Block::default() }
    }

    #[test]
    fn freed_blocks_without_room_are_lost_and_come_back_as_bytes() {
        let mut peak = PeakTracker::new(0);
        peak.after_alloc(PeakMoment { total: 1000, seq: 3, ..PeakMoment::default() }, || 0);
        with_memory_for(0, || {
            peak.after_free(&LiveBlock::of(&block(1, 10)), 10);
            peak.after_free(&LiveBlock::of(&block(2, 20)), 300);
            peak.after_free(&LiveBlock::of(&block(3, 1 << 50)), 1 << 50);
            peak.after_free(&LiveBlock::of(&block(4, 5)), 5);
        });
        assert_eq!((peak.lost, peak.lost_of_sample, peak.freed().count()), (310 + (1 << 50), 300, 0));
        assert!(!peak.take_back(&block(4, 5), 5), "it was not of the peak");
        assert!(peak.take_back(&block(3, 1 << 50), 1 << 50) && peak.take_back(&block(1, 10), 10));
        assert_eq!((peak.lost, peak.lost_of_sample), (300, 300));
        assert!(!peak.take_back(&block(1, 0), 0) && !peak.take_back(&block(1, 301), 301));
        assert!(peak.take_back(&block(2, 20), 300));
        assert_eq!((peak.lost, peak.lost_of_sample), (0, 0));
    }

    #[test]
    fn the_numbers_of_freed_blocks_take_one_allocation() {
        let mut peak = PeakTracker::new(0);
        peak.after_alloc(PeakMoment { total: 1000, seq: 4, ..PeakMoment::default() }, || 0);
        [(3, 10), (2, 1 << 50), (1, 10), (4, 10)]
            .into_iter()
            .for_each(|(seq, size)| peak.after_free(&LiveBlock::of(&block(seq, size)), size));
        assert_eq!(with_memory_for(1, || peak.freed_since().to_vec()), [1, 2, 3, 4]);
        assert_eq!(with_memory_for(0, || peak.freed_since().len()), 0);
    }

    #[test]
    fn the_bytes_below_the_threshold_are_read_again_if_the_peak_moves() {
        let mut peak = PeakTracker::new(7);
        let moment = PeakMoment { total: 10, seq: 1, time_ns: 5, unknown_freed: 0 };
        let moved = |peak: &mut PeakTracker, moment| {
            peak.move_to(moment, OwnVec::new_in(System), 0, || 9);
            std::mem::replace(&mut peak.below_threshold, 7)
        };
        assert_eq!(moved(&mut peak, moment), 9);
        assert_eq!(moved(&mut peak, PeakMoment { total: 11, ..moment }), 7, "the same moment");
        assert_eq!(moved(&mut peak, PeakMoment { time_ns: 6, ..moment }), 9);
        assert_eq!(moved(&mut peak, PeakMoment { seq: 2, time_ns: 6, ..moment }), 9);
    }
}
