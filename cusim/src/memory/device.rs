//! One device's address range and the segments in it.

use super::{SimBlock, SimPool, SimSegment, Span};
use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY, demand_or};
use crate::own::{MmapVec, mmap_vec};

#[derive(Debug)]
pub(crate) struct SimDevice {
    pub(crate) capacity: u64,
    span: Span,
    /// Where the search for room continues (next fit).
    cursor: u64,
    /// Sorted by address.
    segments: MmapVec<SimSegment>,
}

/// A gap for a new block: a segment's index and an address in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeSlot {
    segment: usize,
    pub(crate) address: u64,
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.span.release();
    }
}

impl SimDevice {
    /// Reserves four addresses for each byte of memory, and 64 GiB for managed memory, so that addresses are not reused
    /// soon.
    pub(crate) fn new(capacity: u64) -> Option<Self> {
        let span = Span::reserve(capacity.checked_mul(4)?.next_multiple_of(1 << 21) + (64 << 30), 0)?;
        Some(Self { capacity, cursor: span.base, span, segments: mmap_vec() })
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.span.contains(address)
    }

    pub(crate) fn segments(&self) -> &[SimSegment] {
        &self.segments
    }

    /// A gap in the pool's segments: the next one after the block that the pool placed last (next fit). With `at_once`,
    /// it is the place of the most recently freed block of this size, or else the first gap.
    pub(crate) fn find(&self, index: usize, pool: &mut SimPool, taken: u64, at_once: bool) -> Option<FreeSlot> {
        if at_once
            && let Some(address) = pool.freed_last(taken, |address| self.is_gap(index, address, taken))
            && let Some(segment) = self.segment_at(address)
        {
            return Some(FreeSlot { segment, address });
        }
        let from = if at_once { 0 } else { pool.cursor };
        let slot = self.find_from(index, from, taken).or_else(|| self.find_from(index, 0, taken))?;
        pool.cursor = slot.address + taken;
        Some(slot)
    }

    fn find_from(&self, pool: usize, from: u64, taken: u64) -> Option<FreeSlot> {
        let first = self.segments.partition_point(|segment| segment.end() <= from);
        let later = self.segments.iter().enumerate().skip(first).filter(|(_, segment)| segment.pool == pool);
        later
            .into_iter()
            .find_map(|(index, segment)| segment.gap(from, taken).map(|address| FreeSlot { segment: index, address }))
    }

    fn is_gap(&self, pool: usize, address: u64, taken: u64) -> bool {
        let segment = self.segment_at(address).and_then(|index| self.segments.get(index));
        segment.is_some_and(|segment| segment.pool == pool && segment.gap(address, taken) == Some(address))
    }

    pub(crate) fn grow(&mut self, pool: usize, length: u64) -> Answer {
        let base = self.room(length).ok_or(OUT_OF_MEMORY)?;
        demand_or(Span::open(base, length), OUT_OF_MEMORY)?;
        self.cursor = base + length;
        let index = self.segments.partition_point(|segment| segment.base < base);
        self.segments.insert(index, SimSegment::new(base, length, pool));
        Ok(())
    }

    /// Addresses without a segment, from the cursor on or else from the start.
    fn room(&self, length: u64) -> Option<u64> {
        self.room_from(self.cursor, length).or_else(|| self.room_from(self.span.base, length))
    }

    fn room_from(&self, from: u64, length: u64) -> Option<u64> {
        let mut at = from;
        let first = self.segments.partition_point(|segment| segment.end() <= from);
        for segment in self.segments.iter().skip(first) {
            if segment.base >= at + length {
                return Some(at);
            }
            at = segment.end();
        }
        (self.span.base + self.span.length >= at + length).then_some(at)
    }

    pub(crate) fn put(&mut self, slot: FreeSlot, block: SimBlock) {
        if let Some(segment) = self.segments.get_mut(slot.segment) {
            segment.put(block);
        }
    }

    /// Removes a block; returns it with its pool's index.
    pub(crate) fn take(&mut self, address: u64) -> Answer<(SimBlock, usize)> {
        let index = self.segment_at(address).ok_or(INVALID_VALUE)?;
        let segment = self.segments.get_mut(index).ok_or(INVALID_VALUE)?;
        let block = segment.take(address).ok_or(INVALID_VALUE)?;
        Span::zero(block.address, block.taken);
        Ok((block, segment.pool))
    }

    /// The block that contains an address, and its segment.
    pub(crate) fn block_around(&self, address: u64) -> Option<(&SimBlock, &SimSegment)> {
        let segment = self.segments.get(self.segment_at(address)?)?;
        segment.block_around(address).map(|block| (block, segment))
    }

    fn segment_at(&self, address: u64) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.base <= address).checked_sub(1)?;
        (address < self.segments.get(index)?.end()).then_some(index)
    }

    /// Releases empty segments of the pool, the last ones first, down to `keep` bytes.
    pub(crate) fn shrink(&mut self, pool_index: usize, pool: &mut SimPool, keep: u64) {
        for index in (0..self.segments.len()).rev() {
            let segment = &self.segments[index];
            let left = pool.counters.reserved - if segment.pool == pool_index { segment.length } else { 0 };
            if segment.pool != pool_index || !segment.is_empty() || left < keep {
                continue;
            }
            pool.counters.reserved -= segment.length;
            Span::close(segment.base, segment.length);
            self.segments.remove(index);
        }
    }
}
