//! The driver's stream-ordered pool (`cuMemAllocAsync`), by the rules of the simulated driver: next fit, growth in
//! steps of 32 MiB, and release of empty segments when the program waits for the GPU. The rules are assumptions; they
//! have not been compared with a GPU.

use std::collections::{BTreeMap, BTreeSet};

use super::allocator::Allocator;
use super::gaps::{Gap, Gaps};
use crate::hashed::HashMap;

/// Block sizes are multiples of this.
const GRAIN: u64 = 512;
/// The size of a segment is a multiple of this, if there is room.
const STEP: u64 = 32 << 20;
/// If there is no room for a whole [`STEP`], the size of a segment is a multiple of this.
const LEAST_STEP: u64 = 2 << 20;
/// The first address.
const BASE: u64 = LEAST_STEP;
/// Size of the address space if memory is unlimited.
const UNLIMITED: u64 = 1 << 60;

#[derive(Debug, Default)]
pub(super) struct DriverPool {
    /// Bytes that a synchronization leaves reserved.
    threshold: u64,
    end: u64,
    /// Where the search for the next segment's addresses continues.
    next_segment: u64,
    /// Where the search for the next gap continues.
    next: u64,
    /// Length by address.
    segments: BTreeMap<u64, u64>,
    /// Addresses of segments without a block.
    empty: BTreeSet<u64>,
    gaps: Gaps,
    /// Size by address.
    blocks: HashMap<u64, u64>,
    reserved: u64,
    used: u64,
}

impl DriverPool {
    pub(super) fn new(threshold: u64, memory: Option<u64>) -> Self {
        // The simulated driver has an address space of the same size.
        let span = memory.map_or(UNLIMITED, |memory| {
            memory.saturating_mul(4).min(UNLIMITED).next_multiple_of(LEAST_STEP) + (64 << 30)
        });
        Self { threshold, end: BASE + span, next_segment: BASE, ..Self::default() }
    }

    fn place(&mut self, size: u64) -> Option<u64> {
        let found = self.gaps.first_from(self.next, size).or_else(|| self.gaps.first_from(0, size))?;
        let gap = self.gaps.up_to(found)?;
        self.gaps.remove(gap.address);
        self.leave(gap.address, found);
        self.leave(found + size, gap.end());
        self.empty.remove(&gap.address);
        self.blocks.insert(found, size);
        self.used += size;
        self.next = found + size;
        Some(found)
    }

    fn leave(&mut self, from: u64, to: u64) {
        if to > from {
            self.gaps.insert(Gap { address: from, size: to - from });
        }
    }

    fn grow(&mut self, size: u64, limit: u64) -> Option<()> {
        let (wanted, least) = (size.checked_next_multiple_of(STEP)?, size.checked_next_multiple_of(LEAST_STEP)?);
        let length = [wanted, least].into_iter().find(|length| self.has_room(*length, limit))?;
        let base = self.addresses_from(self.next_segment, length).or_else(|| self.addresses_from(BASE, length))?;
        self.next_segment = base + length;
        self.segments.insert(base, length);
        self.empty.insert(base);
        self.gaps.insert(Gap { address: base, size: length });
        self.reserved += length;
        Some(())
    }

    /// Whether the memory fits, if necessary after empty segments are released.
    fn has_room(&mut self, length: u64, limit: u64) -> bool {
        let fits = |reserved: u64| reserved.checked_add(length).is_some_and(|reserved| reserved <= limit);
        if !fits(self.reserved) {
            self.shrink(0);
        }
        fits(self.reserved)
    }

    /// The first range of this length, at or after `from`, in which there is no segment.
    fn addresses_from(&self, from: u64, length: u64) -> Option<u64> {
        let before = self.segments.range(..from).next_back().map_or(0, |(base, length)| base + length);
        let mut at = from.max(before);
        for (base, taken) in self.segments.range(from..) {
            if *base >= at.checked_add(length)? {
                return Some(at);
            }
            at = base + taken;
        }
        (at.checked_add(length)? <= self.end).then_some(at)
    }

    /// Releases empty segments, the last ones first, down to `keep` bytes.
    fn shrink(&mut self, keep: u64) {
        if self.reserved <= keep {
            return;
        }
        let released: Vec<u64> = self.empty.iter().rev().copied().collect();
        for base in released {
            let Some(length) = self.segments.get(&base).copied() else { continue };
            if self.reserved - length >= keep {
                self.reserved -= length;
                self.segments.remove(&base);
                self.empty.remove(&base);
                self.gaps.remove(base);
            }
        }
    }

    fn segment(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.range(..=address).next_back().map(|(base, length)| (*base, base + length))
    }
}

impl Allocator for DriverPool {
    fn alloc(&mut self, size: u64, _: u32, limit: u64) -> Option<u64> {
        let size = size.max(1).checked_next_multiple_of(GRAIN)?;
        self.place(size).or_else(|| {
            self.grow(size, limit)?;
            self.place(size)
        })
    }

    fn free(&mut self, address: u64) {
        let Some(size) = self.blocks.remove(&address) else { return };
        let Some((base, end)) = self.segment(address) else { return };
        self.used -= size;
        if self.gaps.give_back(Gap { address, size }, base..end).size == end - base {
            self.empty.insert(base);
        }
    }

    fn synchronise(&mut self) {
        self.shrink(self.threshold);
    }

    fn trim(&mut self) {
        self.shrink(0);
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn largest_gap(&self) -> u64 {
        self.gaps.largest()
    }
}
