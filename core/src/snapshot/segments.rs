//! Segments: memory that an allocator reserved in one piece. The driver reports them, or they are estimated as runs of
//! neighbouring addresses.
//!
//! PyTorch's viewers require every address of the log to lie in a segment. The heap's allocator reports no segments, so
//! those of the CPU are estimated over the whole log and marked as such.

use super::ids::{ContextId, StackId, ThreadId};
use super::record::{Block, Record, RecordKind};
use crate::hashed::HashSet;

/// Memory that the allocator reserved from the system in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// True if it was estimated from the addresses of blocks, and not reported by the driver.
    pub estimated: bool,
    /// The id of the private pool that it belongs to, such as a CUDA graph's. Only PyTorch's snapshots have private
    /// pools.
    pub pool: Option<(u64, u64)>,
}

/// A segment was reserved or released: PyTorch's `segment_alloc` and `segment_free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Nanoseconds since the recording began; never goes back within a device. memtrace notices a released segment at
    /// the next call that can reveal it.
    pub time_ns: u64,
    /// Its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Reserved or released.
    pub kind: RecordKind,
    /// True if the driver reported only how much was released. Then memtrace chose this segment among those that were
    /// empty.
    pub estimated: bool,
    /// The stack of the call that revealed it, if stacks are kept.
    pub stack: StackId,
    /// The context of that call.
    pub context: ContextId,
    /// The thread of that call.
    pub thread: ThreadId,
}

/// Largest distance between addresses of one estimated segment: the blocks of a C heap have headers and padding between
/// them.
const NEIGHBOURS: u64 = 4096;

/// All segments by address: the reported ones, and estimated ones for the blocks of `records` and `live` that lie
/// outside of every segment that was ever reported.
pub fn cover(records: &[Record], live: &[Block], told: &[Segment], log: &[SegmentRecord]) -> Vec<Segment> {
    let recorded = records.iter().map(|r| (r.address, r.size));
    let living = live.iter().map(|b| (b.address, b.size));
    // Allocators reuse addresses, so a log has few distinct address ranges.
    let different: HashSet<(u64, u64)> = recorded.chain(living).map(|(address, size)| range(address, size)).collect();
    let known = known(told, log);
    let ranges = different.into_iter().filter(|&(start, end)| !is_within(&known, start, end)).collect();
    let estimated =
        |(start, end): (u64, u64)| Segment { address: start, size: end - start, estimated: true, pool: None };
    let mut all: Vec<Segment> = merged(ranges, NEIGHBOURS).into_iter().map(estimated).collect();
    if !told.is_empty() {
        keep_clear(&mut all, told);
        all.extend(told);
        all.sort_unstable_by_key(|segment| segment.address);
    }
    all
}

/// The segments that exist after these records.
pub(crate) fn still_there(log: &[SegmentRecord]) -> Vec<Segment> {
    let mut there = std::collections::BTreeMap::new();
    for record in log {
        match record.kind {
            RecordKind::Alloc => there.insert(record.address, record.size),
            RecordKind::Free => there.remove(&record.address),
        };
    }
    there.into_iter().map(|(address, size)| Segment { address, size, estimated: false, pool: None }).collect()
}

fn range(address: u64, size: u64) -> (u64, u64) {
    (address, address.saturating_add(size.max(1)))
}

/// Every address range that was ever in a reported segment, merged and sorted.
fn known(told: &[Segment], log: &[SegmentRecord]) -> Vec<(u64, u64)> {
    let logged = log.iter().map(|record| range(record.address, record.size));
    merged(told.iter().map(|s| range(s.address, s.size)).chain(logged).collect(), 0)
}

/// Sorts ranges and joins those at most `gap` apart.
pub(crate) fn merged(mut ranges: Vec<(u64, u64)>, gap: u64) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1.saturating_add(gap) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

fn is_within(ranges: &[(u64, u64)], start: u64, end: u64) -> bool {
    let before = ranges.partition_point(|range| range.0 <= start);
    before.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| end <= range.1)
}

/// Makes each estimated segment end where the next reported one begins.
fn keep_clear(estimated: &mut [Segment], told: &[Segment]) {
    let mut begins: Vec<u64> = told.iter().map(|segment| segment.address).collect();
    begins.sort_unstable();
    for segment in estimated {
        let next = begins.partition_point(|begin| *begin <= segment.address);
        if let Some(next) = begins.get(next) {
            segment.size = segment.size.min(next - segment.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::testing::block;

    #[test]
    fn told_segments_stand_for_themselves_and_the_rest_is_estimated() {
        let told = [Segment { address: 0x10_0000, size: 0x10_0000, estimated: false, pool: None }];
        let gone = SegmentRecord {
            time_ns: 0,
            address: 0x80_0000,
            size: 0x10_0000,
            kind: RecordKind::Free,
            estimated: false,
            stack: StackId::NONE,
            context: ContextId::ROOT,
            thread: ThreadId::default(),
        };
        let live = [(0x10_0200, 0x300), (0x80_0000, 0x100), (0xff_f000, 0x2000), (0x0f_fff0, 0x8)]
            .map(|(address, size)| block(address, size));
        let segments = cover(&[], &live, &told, &[gone]);
        let expected = [(0x0f_fff0, 0x8, true), (0x10_0000, 0x10_0000, false), (0xff_f000, 0x2000, true)];
        assert_eq!(segments.iter().map(|s| (s.address, s.size, s.estimated)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn neighbours_share_a_segment_and_strangers_do_not() {
        let ranges = vec![(0x1000, 0x2000), (0x1800, 0x1900), (0x2fff, 0x4000), (0x6000, 0x7000)];
        assert_eq!(merged(ranges, NEIGHBOURS), [(0x1000, 0x4000), (0x6000, 0x7000)]);
    }

    /// Finds where the next reported segment begins by comparing all of them.
    fn by_definition(estimated: &Segment, told: &[Segment]) -> Segment {
        let next = told.iter().map(|segment| segment.address).filter(|address| *address > estimated.address).min();
        let size = next.map_or(estimated.size, |next| estimated.size.min(next - estimated.address));
        Segment { size, ..*estimated }
    }

    fn segments(most: u64) -> impl Strategy<Value = Vec<Segment>> {
        let segment = (0..most, 1..most).prop_map(|(address, size)| Segment { address, size, ..Segment::default() });
        prop::collection::vec(segment, 0..30)
    }

    proptest! {
        #[test]
        fn an_estimated_segment_ends_where_the_next_reported_one_begins(all in segments(200), told in segments(200)) {
            let mut found = all.clone();
            keep_clear(&mut found, &told);
            let expected: Vec<Segment> = all.iter().map(|segment| by_definition(segment, &told)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// With a search through all segments for each block, this would take a minute.
    #[test]
    fn a_block_outside_of_each_of_two_hundred_thousand_segments_is_no_trouble() {
        let told = |at: u64| Segment { address: at << 16, size: 512, ..Segment::default() };
        let told: Vec<Segment> = (1..=200_000).map(told).collect();
        let live: Vec<Block> = (1..=200_000).map(|at| block((at << 16) + 0x8000, 512)).collect();
        assert_eq!(cover(&[], &live, &told, &[]).len(), 400_000);
    }
}
