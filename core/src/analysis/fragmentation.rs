//! External fragmentation: unused holes between live blocks in a device's segments.

use std::collections::BTreeMap;

use crate::hashed::by_key;
use crate::snapshot::{Block, DeviceSnapshot, MADE_UP, Segment};

/// Segments and their holes when the snapshot was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fragmentation {
    /// Number of segments.
    #[serde(rename = "count")]
    pub segments: usize,
    /// Bytes of all segments.
    #[serde(rename = "reserved_bytes")]
    pub reserved: u64,
    /// Bytes of recorded live blocks in segments.
    #[serde(rename = "live_bytes")]
    pub live: u64,
    /// Number of holes before, between and after blocks. Bytes by which pools round up are also holes.
    pub holes: usize,
    /// Bytes of the largest hole.
    #[serde(rename = "largest_hole_bytes")]
    pub largest_hole: u64,
    /// Bytes of segments without a recorded live block. A pool can release them.
    #[serde(rename = "empty_bytes")]
    pub empty: u64,
    /// True if a segment was estimated from addresses, not reported by the driver.
    pub estimated: bool,
}

impl Fragmentation {
    /// Reserved bytes outside of recorded blocks.
    pub fn unused(&self) -> u64 {
        self.reserved.saturating_sub(self.live)
    }
}

/// The fragmentation of a device's segments. Memory whose address memtrace had to make up is left out.
pub fn fragmentation(device: &DeviceSnapshot) -> Fragmentation {
    of_segments(with_blocks(device.segments.iter(), &by_address(&device.live)))
}

/// The fragmentation of each private pool of the allocator, such as a CUDA graph's. The key `None` stands for the one
/// pool that serves all other memory.
pub fn fragmentation_by_pool(device: &DeviceSnapshot) -> Vec<(Option<(u64, u64)>, Fragmentation)> {
    let pools = BTreeMap::from_iter(by_key(device.segments.iter().map(|segment| (segment.pool, segment))));
    let blocks = by_address(&device.live);
    pools.into_iter().map(|(pool, segments)| (pool, of_segments(with_blocks(segments.into_iter(), &blocks)))).collect()
}

pub(super) fn by_address(blocks: &[Block]) -> Vec<&Block> {
    let mut blocks: Vec<&Block> = blocks.iter().collect();
    blocks.sort_unstable_by_key(|block| (block.address, block.size));
    blocks
}

/// Segments by address, each with the blocks that begin in it. Only segments of a damaged file overlap. A block there
/// belongs to the first segment, so that each block counts once.
pub(super) fn with_blocks<'s, 'b>(
    segments: impl Iterator<Item = &'s Segment>,
    blocks: &'b [&'b Block],
) -> impl Iterator<Item = (&'s Segment, &'b [&'b Block])> {
    let mut segments: Vec<&Segment> = segments.collect();
    segments.sort_by_key(|segment| segment.address);
    let mut next = 0;
    segments.into_iter().map(move |segment| {
        let end = segment.address.saturating_add(segment.size);
        let place = |address: u64| blocks.partition_point(|block| block.address < address);
        let first = place(segment.address).max(next);
        next = place(end).max(first);
        (segment, blocks.get(first..next).unwrap_or_default())
    })
}

fn of_segments<'a>(segments: impl Iterator<Item = (&'a Segment, &'a [&'a Block])>) -> Fragmentation {
    let mut all = Fragmentation::default();
    for (segment, inside) in segments.filter(|(segment, _)| segment.address < MADE_UP) {
        let end = segment.address.saturating_add(segment.size);
        let mut at = segment.address;
        for block in inside {
            all.hole(block.address.saturating_sub(at));
            all.live += block.size;
            at = block.address.saturating_add(block.size);
        }
        let is_empty = inside.is_empty();
        all.hole(end.saturating_sub(at));
        all.segments += 1;
        all.reserved += segment.size;
        all.empty += if is_empty { segment.size } else { 0 };
        all.estimated |= segment.estimated;
    }
    all
}

impl Fragmentation {
    fn hole(&mut self, bytes: u64) {
        self.holes += usize::from(bytes > 0);
        self.largest_hole = self.largest_hole.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;

    #[test]
    fn holes_lie_before_between_and_behind_blocks() {
        for (blocks, holes, hole) in [
            (vec![], 1, 1000),
            (vec![(1000, 300)], 1, 700),
            (vec![(1400, 100)], 2, 500),
            (vec![(1100, 500), (1900, 100)], 2, 300),
        ] {
            let live: u64 = blocks.iter().map(|(_, size)| size).sum();
            let mut trace = Story::cuda(0);
            trace.segment_alloc(1000, 1000);
            for (address, size) in blocks {
                trace.alloc(address, size).address(address);
            }
            let found = fragmentation(&trace.device());
            assert_eq!((found.holes, found.largest_hole, found.live), (holes, hole, live));
            assert_eq!((found.reserved, found.empty), (1000, if live == 0 { 1000 } else { 0 }));
        }
    }

    #[test]
    fn pools_have_their_own_segments_and_holes() {
        let mut trace = Story::cuda(0);
        trace.segment_alloc(1000, 1000).segment_alloc(5000, 1000).segment_alloc(9000, 500);
        trace.alloc("shared", 400).address(1000);
        trace.alloc("private", 100).address(5000);
        let mut device = trace.device();
        device.segments.iter_mut().filter(|it| it.address >= 5000).for_each(|it| it.pool = Some((0, 1)));
        let pools = fragmentation_by_pool(&device);
        let figures = |all: &Fragmentation| (all.segments, all.reserved, all.live, all.largest_hole, all.empty);
        let found: Vec<_> = pools.iter().map(|(pool, all)| (*pool, figures(all))).collect();
        assert_eq!(found, [(None, (1, 1000, 400, 600, 0)), (Some((0, 1)), (2, 1500, 100, 900, 500))]);
        let whole = fragmentation(&device);
        assert_eq!(whole.reserved, pools.iter().map(|(_, all)| all.reserved).sum::<u64>());
    }

    #[test]
    fn what_has_no_address_of_its_own_is_no_segment_with_holes() {
        let device = Story::cuda(0).segment_alloc(1000, 1000).segment_alloc(MADE_UP, 7000).device();
        let found = fragmentation(&device);
        assert_eq!((found.segments, found.reserved, found.empty), (1, 1000, 1000));
    }
}
