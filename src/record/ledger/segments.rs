//! Segments of a CUDA device as the driver reports them, and the reserved bytes.
//!
//! The driver is queried without a lock held, so answers may overtake each other; a [`QueryTicket`] detects that. About
//! a pool, the driver reports only the total size. So memtrace infers from the pool's empty segments which ones were
//! returned to the system, and marks these as estimated where this is ambiguous.

use memtrace_core::snapshot::{Block, MemoryKind, RecordKind, Segment, SegmentRecord, Stat};

use super::super::event_site::EventSite;
use super::super::memory::{OwnVec, System, try_push};
use super::ring::Ring;

/// Capacity of the log of added and removed segments.
const MAX_RECORDS: usize = 65_536;

/// The driver's answer about the segment of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentAnswer {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Handle of the segment's pool; 0 for none.
    pub(crate) pool: u64,
    pub(crate) pool_reserved: u64,
}

/// Taken before a query: the number of answers so far. If the number is larger when the answer arrives, other answers
/// overtook this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueryTicket(u64);

#[derive(Clone, Copy, Debug)]
struct PoolState {
    handle: u64,
    reserved: u64,
    /// The number of answers about all pools, up to and including the last answer about this pool.
    answered: QueryTicket,
}

impl SegmentAnswer {
    fn key(self) -> (u64, u64, u64) {
        (self.address, self.size, self.pool)
    }
}

#[derive(Clone, Copy, Debug)]
struct KnownSegment {
    answer: SegmentAnswer,
    blocks: u32,
}

impl KnownSegment {
    fn end(&self) -> u64 {
        self.answer.address.saturating_add(self.answer.size)
    }
}

#[derive(Debug)]
pub(crate) struct Segments {
    /// Sorted by address, without overlaps.
    known: OwnVec<KnownSegment>,
    log: Ring<SegmentRecord>,
    /// The last answer about each pool.
    pools: OwnVec<PoolState>,
    answers: QueryTicket,
    /// Bytes of live blocks outside known segments.
    outside: u64,
    /// Kinds of memory whose segments the driver does not report.
    unreported: [bool; MemoryKind::ALL.len()],
    reserved: Stat,
}

impl Segments {
    pub(crate) fn new() -> Self {
        let (reserved, unreported) = Default::default();
        let (known, pools) = (OwnVec::new_in(System), OwnVec::new_in(System));
        Self {
            known,
            log: Ring::new(MAX_RECORDS),
            pools,
            answers: QueryTicket::default(),
            outside: 0,
            unreported,
            reserved,
        }
    }

    /// Must be called before the driver is queried.
    pub(crate) fn ticket(&self) -> QueryTicket {
        self.answers
    }

    /// Whether the segment of this block is unknown, so that the driver must be queried before the block is entered.
    #[inline]
    pub(crate) fn needs_query(&self, address: u64, memory: MemoryKind) -> bool {
        matches!(memory, MemoryKind::Pool | MemoryKind::Classic)
            && !self.unreported.get(memory as usize).copied().unwrap_or(true)
            && self.find(address).is_none()
    }

    /// Notes that the driver does not report segments of this kind of memory. Returns false: the reserved bytes are not
    /// known to have grown.
    pub(crate) fn is_unreported(&mut self, memory: MemoryKind) -> bool {
        if let Some(unreported) = self.unreported.get_mut(memory as usize) {
            *unreported = true;
        }
        false
    }

    #[inline]
    pub(crate) fn on_alloc(&mut self, address: u64, size: u64) {
        match self.find(address).and_then(|at| self.known.get_mut(at)) {
            Some(known) => known.blocks += 1,
            None => {
                self.outside += size;
                self.more(size);
            }
        }
    }

    #[inline]
    pub(crate) fn on_free(&mut self, address: u64, size: u64) {
        match self.find(address).and_then(|at| self.known.get_mut(at)) {
            Some(known) => known.blocks = known.blocks.saturating_sub(1),
            None => {
                self.outside = self.outside.saturating_sub(size);
                self.less(size);
            }
        }
    }

    /// Adds a segment. Known segments that overlap it must have been returned unnoticed, so they are removed. `live`
    /// are the device's live blocks. Returns whether the reserved bytes grew.
    pub(crate) fn add(
        &mut self,
        answer: SegmentAnswer,
        ticket: QueryTicket,
        live: impl Iterator<Item = Block>,
        time_ns: u64,
        site: EventSite,
    ) -> bool {
        // Another thread may have asked about the same segment, and added it.
        let is_it = |known: &KnownSegment| (known.answer.address, known.answer.size, known.answer.pool) == answer.key();
        if self.find(answer.address).and_then(|at| self.known.get(at)).is_some_and(is_it) {
            return answer.pool != 0 && self.pool_has(answer.pool, answer.pool_reserved, ticket, time_ns, site);
        }
        let end = answer.address.saturating_add(answer.size);
        while let Some(at) = self.known.iter().position(|k| k.answer.address < end && answer.address < k.end()) {
            self.remove(at, time_ns, site, true);
        }
        let at = self.known.partition_point(|known| known.answer.address < answer.address);
        if self.known.try_reserve(1).is_err() {
            return false;
        }
        self.known.insert(at, KnownSegment { answer, blocks: 0 });
        self.log.push(record(answer, RecordKind::Alloc, time_ns, site, false));
        if answer.pool == 0 {
            self.more(answer.size);
        }
        self.recount(live);
        if answer.pool == 0 {
            return true;
        }
        // A block is about to be entered into this segment. It is counted now, so that the segment does not look empty.
        self.on_alloc(answer.address, 0);
        let grew = self.pool_has(answer.pool, answer.pool_reserved, ticket, time_ns, site);
        self.on_free(answer.address, 0);
        grew
    }

    fn recount(&mut self, live: impl Iterator<Item = Block>) {
        self.known.iter_mut().for_each(|known| known.blocks = 0);
        let mut outside = 0;
        for block in live {
            match self.find(block.address).and_then(|at| self.known.get_mut(at)) {
                Some(known) => known.blocks += 1,
                None => outside += block.size,
            }
        }
        let before = std::mem::replace(&mut self.outside, outside);
        self.less(before.saturating_sub(outside));
        self.more(outside.saturating_sub(before));
    }

    fn remove(&mut self, at: usize, time_ns: u64, site: EventSite, estimated: bool) {
        let answer = self.known.remove(at).answer;
        if answer.pool == 0 {
            self.less(answer.size);
        }
        self.log.push(record(answer, RecordKind::Free, time_ns, site, estimated));
    }

    /// Returns (bytes of the pool's segments, bytes of those without blocks).
    fn of_pool(&self, pool: u64) -> (u64, u64) {
        let of_it = || self.known.iter().filter(|known| known.answer.pool == pool);
        let sum = |all: u64, known: &KnownSegment| all + known.answer.size;
        (of_it().fold(0, sum), of_it().filter(|known| known.blocks == 0).fold(0, sum))
    }

    /// Pools that have segments without blocks; 0 for memory of no pool.
    pub(crate) fn pools_with_empty(&self) -> OwnVec<u64> {
        let mut pools = OwnVec::new_in(System);
        for known in self.known.iter().filter(|known| known.blocks == 0) {
            if !pools.contains(&known.answer.pool) {
                try_push(&mut pools, known.answer.pool);
            }
        }
        pools
    }

    /// Notes the pool's reserved bytes, and returns whether they grew. If they shrank, removes empty segments.
    pub(crate) fn pool_has(
        &mut self,
        pool: u64,
        bytes: u64,
        ticket: QueryTicket,
        time_ns: u64,
        site: EventSite,
    ) -> bool {
        let (known, empty) = self.of_pool(pool);
        self.answers.0 += 1;
        let answered = self.answers;
        let (before, bytes) = match self.pools.iter_mut().find(|known| known.handle == pool) {
            Some(last) => {
                // Another answer arrived during this query, so it is unknown which of the two is newer. Take the larger
                // one: it was true at some time, and the next answer corrects it.
                let bytes = if ticket < last.answered { bytes.max(last.reserved) } else { bytes };
                last.answered = answered;
                (std::mem::replace(&mut last.reserved, bytes), bytes)
            }
            None => {
                try_push(&mut self.pools, PoolState { handle: pool, reserved: bytes, answered });
                // The pool is seen for the first time, so its other segments are not new.
                let before = bytes.saturating_sub(known);
                self.more(before);
                (before, bytes)
            }
        };
        self.more(bytes.saturating_sub(before));
        self.less(before.saturating_sub(bytes));
        let gone = before.saturating_sub(bytes).max(known.saturating_sub(bytes)).min(empty);
        self.take_empty(pool, gone, gone < empty, time_ns, site);
        bytes > before
    }

    /// Removes empty segments outside pools. As far as is known, the driver returns their memory to the system at once.
    pub(crate) fn drop_empty_of_none(&mut self, time_ns: u64, site: EventSite) {
        let (_, empty) = self.of_pool(0);
        self.take_empty(0, empty, true, time_ns, site);
    }

    /// Removes empty segments of this pool, at most `bytes` bytes of them, from the highest address down.
    fn take_empty(&mut self, pool: u64, bytes: u64, estimated: bool, time_ns: u64, site: EventSite) {
        let mut left = bytes;
        let fits =
            |known: &KnownSegment, left| known.answer.pool == pool && known.blocks == 0 && known.answer.size <= left;
        while let Some(at) = self.known.iter().rposition(|known| fits(known, left)) {
            left -= self.known.get(at).map_or(0, |known| known.answer.size);
            self.remove(at, time_ns, site, estimated);
        }
    }

    pub(crate) fn restart(&mut self) {
        self.log = Ring::new(MAX_RECORDS);
        self.reserved = Stat { allocated: 0, freed: 0, ..self.reserved };
        self.reset_peak();
    }

    pub(crate) fn reset_peak(&mut self) {
        self.reserved.peak = self.reserved.current;
    }

    /// Reserved bytes, if the driver ever reported a segment.
    pub(crate) fn reserved(&self) -> Option<Stat> {
        (!self.known.is_empty() || self.log.len() > 0).then_some(self.reserved)
    }

    pub(crate) fn log(&self) -> &Ring<SegmentRecord> {
        &self.log
    }

    /// The current segments, sorted by address.
    pub(crate) fn current(&self) -> impl Iterator<Item = Segment> {
        let segment = |known: &KnownSegment| Segment {
            address: known.answer.address,
            size: known.answer.size,
            estimated: false,
            pool: None,
        };
        self.known.iter().map(segment)
    }

    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let at = self.known.partition_point(|known| known.answer.address <= address).checked_sub(1)?;
        self.known.get(at).filter(|known| address < known.end()).map(|_| at)
    }

    fn more(&mut self, bytes: u64) {
        self.reserved.current += bytes;
        self.reserved.allocated += bytes;
        self.reserved.peak = self.reserved.peak.max(self.reserved.current);
    }

    fn less(&mut self, bytes: u64) {
        self.reserved.current = self.reserved.current.saturating_sub(bytes);
        self.reserved.freed += bytes;
    }
}

fn record(answer: SegmentAnswer, kind: RecordKind, time_ns: u64, site: EventSite, estimated: bool) -> SegmentRecord {
    let EventSite { stack, context, thread, .. } = site;
    SegmentRecord { time_ns, address: answer.address, size: answer.size, kind, estimated, stack, context, thread }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn block(address: u64, size: u64) -> Block {
        Block { address, size, ..Block::default() }
    }

    fn answer(address: u64, size: u64, pool_reserved: u64) -> SegmentAnswer {
        SegmentAnswer { address, size, pool: 1, pool_reserved }
    }

    /// Adds the answer of a query without delay, with no live blocks.
    fn add(segments: &mut Segments, answer: SegmentAnswer) -> bool {
        segments.add(answer, segments.ticket(), std::iter::empty(), 0, EventSite::default())
    }

    fn pool_has(segments: &mut Segments, bytes: u64) -> bool {
        segments.pool_has(1, bytes, segments.ticket(), 1, EventSite::default())
    }

    fn starts(segments: &Segments) -> Vec<u64> {
        segments.current().map(|segment| segment.address / MIB).collect()
    }

    fn current(segments: &Segments) -> u64 {
        segments.reserved().unwrap().current
    }

    #[test]
    fn segments_outside_pools_add_up_and_are_known_by_address_size_and_pool() {
        let mut segments = Segments::new();
        assert_eq!(segments.reserved().map(|stat| stat.current), None);
        let of_none = |address, size| SegmentAnswer { pool: 0, ..answer(address, size, 0) };
        assert!([1, 3, 5].iter().all(|at| add(&mut segments, of_none(at * MIB, MIB))));
        assert!(!add(&mut segments, of_none(3 * MIB, MIB)), "another thread asked about it, too");
        assert_eq!((starts(&segments), current(&segments), segments.log().len()), (vec![1, 3, 5], 3 * MIB, 3));
        assert!(add(&mut segments, of_none(3 * MIB, MIB / 2)), "another segment at the same address");
        assert!(add(&mut segments, of_none(6 * MIB, MIB)), "a segment that begins where another ends");
        assert_eq!((starts(&segments), segments.log().len()), (vec![1, 3, 5, 6], 6));
        segments.drop_empty_of_none(9, EventSite::default());
        let stat = segments.reserved().unwrap();
        let all = 4 * MIB + MIB / 2;
        assert_eq!((starts(&segments), stat.current, stat.allocated, stat.freed), (vec![], 0, all, all));
        segments.restart();
        assert_eq!(segments.reserved().map(|stat| stat.current), None, "nothing since");
    }

    #[test]
    fn empty_segments_go_from_the_end_and_it_is_estimated_if_some_stay() {
        let mut segments = Segments::new();
        assert!(segments.needs_query(5, MemoryKind::Pool) && !segments.needs_query(5, MemoryKind::Virtual));
        for start in [0, 32, 64] {
            assert!(add(&mut segments, answer(start * MIB, 32 * MIB, (start + 32) * MIB)));
        }
        segments.on_alloc(40 * MIB, 100);
        assert!(!segments.needs_query(40 * MIB, MemoryKind::Pool));
        assert_eq!((segments.of_pool(1), segments.of_pool(2)), ((96 * MIB, 64 * MIB), (0, 0)));
        assert!(!pool_has(&mut segments, 64 * MIB));
        assert_eq!(starts(&segments), [0, 32]);
        assert!(!pool_has(&mut segments, 32 * MIB));
        assert_eq!(starts(&segments), [32]);
        let log: Vec<_> = segments.log().in_order().skip(3).map(|r| (r.kind, r.estimated)).collect();
        assert_eq!(log, [(RecordKind::Free, true), (RecordKind::Free, false)]);
        assert_eq!(current(&segments), 32 * MIB);
        assert_eq!(segments.reserved().unwrap().peak, 96 * MIB);
    }

    #[test]
    fn blocks_outside_count_by_themselves_until_a_segment_has_them() {
        let mut segments = Segments::new();
        let live = [block(100, 10), block(5000, 20)];
        live.iter().for_each(|block| segments.on_alloc(block.address, block.size));
        assert_eq!(segments.reserved(), None);
        let mut add = |answer| {
            let ticket = segments.ticket();
            let grew = segments.add(answer, ticket, live.iter().copied(), 0, EventSite::default());
            (grew, current(&segments))
        };
        assert_eq!(add(answer(0, 1000, 7000)), (true, 7020), "the pool had more before");
        assert_eq!(add(answer(500, 1000, 7000)), (false, 7030), "it is not new; the first was not noticed to go");
        segments.on_free(100, 10);
        segments.on_free(5000, 20);
        assert_eq!(current(&segments), 7000);
        segments.is_unreported(MemoryKind::Classic);
        assert!(!segments.needs_query(9999, MemoryKind::Classic) && segments.needs_query(9999, MemoryKind::Pool));
    }

    #[test]
    fn a_segment_that_came_just_now_is_not_the_one_that_went() {
        let mut segments = Segments::new();
        add(&mut segments, answer(0, 32 * MIB, 32 * MIB));
        assert!(!add(&mut segments, answer(64 * MIB, 32 * MIB, 32 * MIB)), "another one went unnoticed");
        assert_eq!(starts(&segments), [64]);
        assert_eq!(current(&segments), 32 * MIB);
    }

    #[test]
    fn of_answers_that_were_asked_for_at_once_the_later_one_takes_nothing_back() {
        let mut segments = Segments::new();
        add(&mut segments, answer(0, 32 * MIB, 32 * MIB));
        let ticket = segments.ticket();
        let mut add_late = |answer| segments.add(answer, ticket, std::iter::empty(), 0, EventSite::default());
        assert!(add_late(answer(64 * MIB, 32 * MIB, 96 * MIB)));
        // The answer does not include the other thread's segment.
        assert!(!add_late(answer(32 * MIB, 32 * MIB, 64 * MIB)));
        assert_eq!(starts(&segments), [0, 32, 64]);
        assert_eq!(segments.reserved().unwrap().current, 96 * MIB);
        pool_has(&mut segments, 64 * MIB);
        assert_eq!(current(&segments), 64 * MIB, "it is newer");
    }

    #[test]
    fn what_is_there_at_a_new_beginning_is_neither_taken_nor_given_back() {
        let mut segments = Segments::new();
        for start in [0, 32] {
            add(&mut segments, answer(start * MIB, 32 * MIB, (start + 32) * MIB));
        }
        pool_has(&mut segments, 32 * MIB);
        segments.restart();
        let now = Stat { current: 32 * MIB, peak: 32 * MIB, allocated: 0, freed: 0 };
        assert_eq!((segments.reserved(), segments.log().len()), (Some(now), 0));
    }
}
