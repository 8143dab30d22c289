//! Segments of a CUDA device as its driver tells of them, and what is reserved by it.

use super::memory::{OwnVec, System, try_push};
use super::ring::Ring;
use super::site::Site;
use crate::snapshot::{Block, MemoryKind, RecordKind, Segment, SegmentRecord, Stat};

/// Segments that came or went, of which the log keeps the newest.
const MAX_RECORDS: usize = 65_536;

/// What the driver says of the segment that a block lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The pool that has it; 0 if none.
    pub(crate) pool: u64,
    /// Bytes that this pool has in all.
    pub(crate) pool_reserved: u64,
}

/// When the driver is asked, by the answers that had come until then. Nobody waits for an answer, so others may come
/// meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked(u64);

#[derive(Clone, Copy, Debug)]
struct Pool {
    handle: u64,
    /// Bytes that it has.
    reserved: u64,
    /// The answers that had come when this one had.
    answered: Asked,
}

impl Told {
    fn key(self) -> (u64, u64, u64) {
        (self.address, self.size, self.pool)
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    told: Told,
    /// Live blocks in it.
    blocks: u32,
}

impl Known {
    fn end(&self) -> u64 {
        self.told.address.saturating_add(self.told.size)
    }
}

#[derive(Debug)]
pub(crate) struct Segments {
    /// By address, without overlaps.
    known: OwnVec<Known>,
    log: Ring<SegmentRecord>,
    /// What the driver said last of each pool.
    pools: OwnVec<Pool>,
    answers: Asked,
    /// Bytes of live blocks outside of all of them.
    outside: u64,
    /// The driver would not tell of such memory.
    untold: [bool; MemoryKind::ALL.len()],
    reserved: Stat,
}

impl Segments {
    pub(crate) fn new() -> Self {
        let (reserved, untold) = Default::default();
        let (known, pools) = (OwnVec::new_in(System), OwnVec::new_in(System));
        Self { known, log: Ring::new(MAX_RECORDS), pools, answers: Asked::default(), outside: 0, untold, reserved }
    }

    /// The driver is about to be asked.
    pub(crate) fn ask(&self) -> Asked {
        self.answers
    }

    /// Should the driver be asked about this block before it is entered?
    #[inline]
    pub(crate) fn must_ask(&self, address: u64, memory: MemoryKind) -> bool {
        matches!(memory, MemoryKind::Pool | MemoryKind::Classic)
            && !self.untold.get(memory as usize).copied().unwrap_or(true)
            && self.find(address).is_none()
    }

    /// It does not tell of such memory: nothing is known to have grown.
    pub(crate) fn cannot_tell(&mut self, memory: MemoryKind) -> bool {
        self.untold.get_mut(memory as usize).into_iter().for_each(|untold| *untold = true);
        false
    }

    /// A block is about to be entered.
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

    /// It was taken out.
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

    /// A segment came. Those that it overlaps went unnoticed. `live` are the blocks that are there. Says whether
    /// more is reserved now.
    pub(crate) fn add(
        &mut self,
        told: Told,
        asked: Asked,
        live: impl Iterator<Item = Block>,
        time_ns: u64,
        site: Site,
    ) -> bool {
        // Another thread may have asked, too.
        let is_it = |known: &Known| (known.told.address, known.told.size, known.told.pool) == told.key();
        if self.find(told.address).and_then(|at| self.known.get(at)).is_some_and(is_it) {
            return told.pool != 0 && self.pool_has(told.pool, told.pool_reserved, asked, time_ns, site);
        }
        let end = told.address.saturating_add(told.size);
        while let Some(at) = self.known.iter().position(|k| k.told.address < end && told.address < k.end()) {
            self.remove(at, time_ns, site, true);
        }
        let at = self.known.partition_point(|known| known.told.address < told.address);
        if self.known.try_reserve(1).is_err() {
            return false;
        }
        self.known.insert(at, Known { told, blocks: 0 });
        self.log.push(record(told, RecordKind::Alloc, time_ns, site, false));
        if told.pool == 0 {
            self.more(told.size);
        }
        self.recount(live);
        if told.pool == 0 {
            return true;
        }
        // A block is about to lie in it: if empty segments have gone, it is none of them.
        self.on_alloc(told.address, 0);
        let grew = self.pool_has(told.pool, told.pool_reserved, asked, time_ns, site);
        self.on_free(told.address, 0);
        grew
    }

    /// Counts blocks again, in segments and outside.
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

    fn remove(&mut self, at: usize, time_ns: u64, site: Site, estimated: bool) {
        let told = self.known.remove(at).told;
        if told.pool == 0 {
            self.less(told.size);
        }
        self.log.push(record(told, RecordKind::Free, time_ns, site, estimated));
    }

    /// Bytes of the pool's segments, and how many of them are in segments without blocks.
    fn of_pool(&self, pool: u64) -> (u64, u64) {
        let of_it = || self.known.iter().filter(|known| known.told.pool == pool);
        let sum = |all: u64, known: &Known| all + known.told.size;
        (of_it().fold(0, sum), of_it().filter(|known| known.blocks == 0).fold(0, sum))
    }

    /// Pools that have segments without blocks, 0 for memory of none.
    pub(crate) fn pools_with_empty(&self) -> OwnVec<u64> {
        let mut pools = OwnVec::new_in(System);
        for known in self.known.iter().filter(|known| known.blocks == 0) {
            if !pools.contains(&known.told.pool) {
                try_push(&mut pools, known.told.pool);
            }
        }
        pools
    }

    /// The pool has so many bytes now; true if that is more than before. If it is less, empty segments have
    /// gone.
    pub(crate) fn pool_has(&mut self, pool: u64, bytes: u64, asked: Asked, time_ns: u64, site: Site) -> bool {
        let (known, empty) = self.of_pool(pool);
        self.answers.0 += 1;
        let answered = self.answers;
        let (before, bytes) = match self.pools.iter_mut().find(|known| known.handle == pool) {
            Some(last) => {
                // If that answer came while this one was being asked for, which of them is newer is not known: what
                // was there at one time was there. The next one tells whether it still is.
                let bytes = if asked < last.answered { bytes.max(last.reserved) } else { bytes };
                last.answered = answered;
                (std::mem::replace(&mut last.reserved, bytes), bytes)
            }
            None => {
                try_push(&mut self.pools, Pool { handle: pool, reserved: bytes, answered });
                // What was there already is not known to have come just now.
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

    /// Empty segments of no pool go at once, as far as is known.
    pub(crate) fn drop_empty_of_none(&mut self, time_ns: u64, site: Site) {
        let (_, empty) = self.of_pool(0);
        self.take_empty(0, empty, true, time_ns, site);
    }

    /// From the highest address on.
    fn take_empty(&mut self, pool: u64, bytes: u64, estimated: bool, time_ns: u64, site: Site) {
        let mut left = bytes;
        while left > 0 {
            let fits = |known: &Known| known.told.pool == pool && known.blocks == 0 && known.told.size <= left;
            let Some(at) = self.known.iter().rposition(fits) else { return };
            left -= self.known.get(at).map_or(0, |known| known.told.size);
            self.remove(at, time_ns, site, estimated);
        }
    }

    /// Forgets the log; what is there stays.
    pub(crate) fn begin_anew(&mut self) {
        self.log = Ring::new(MAX_RECORDS);
        self.reserved = Stat { allocated: 0, freed: 0, ..self.reserved };
        self.reset_peak();
    }

    pub(crate) fn reset_peak(&mut self) {
        self.reserved.peak = self.reserved.current;
    }

    /// Bytes reserved, if the driver ever told.
    pub(crate) fn reserved(&self) -> Option<Stat> {
        (!self.known.is_empty() || self.log.len() > 0).then_some(self.reserved)
    }

    pub(crate) fn log(&self) -> &Ring<SegmentRecord> {
        &self.log
    }

    /// Those that are there, by address.
    pub(crate) fn told(&self) -> impl Iterator<Item = Segment> {
        let segment = |known: &Known| Segment { address: known.told.address, size: known.told.size, estimated: false };
        self.known.iter().map(segment)
    }

    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let at = self.known.partition_point(|known| known.told.address <= address).checked_sub(1)?;
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

fn record(told: Told, kind: RecordKind, time_ns: u64, site: Site, estimated: bool) -> SegmentRecord {
    let Site { stack, context, thread, .. } = site;
    SegmentRecord { time_ns, address: told.address, size: told.size, kind, estimated, stack, context, thread }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn block(address: u64, size: u64) -> Block {
        Block { address, size, ..Block::default() }
    }

    fn told(address: u64, size: u64, pool_reserved: u64) -> Told {
        Told { address, size, pool: 1, pool_reserved }
    }

    /// Asked for and answered at once, without blocks.
    fn add(segments: &mut Segments, told: Told) -> bool {
        segments.add(told, segments.ask(), std::iter::empty(), 0, Site::default())
    }

    fn pool_has(segments: &mut Segments, bytes: u64) -> bool {
        segments.pool_has(1, bytes, segments.ask(), 1, Site::default())
    }

    fn starts(segments: &Segments) -> Vec<u64> {
        segments.told().map(|segment| segment.address / MIB).collect()
    }

    fn current(segments: &Segments) -> u64 {
        segments.reserved().unwrap().current
    }

    #[test]
    fn empty_segments_go_from_the_end_and_it_is_estimated_if_some_stay() {
        let mut segments = Segments::new();
        assert!(segments.must_ask(5, MemoryKind::Pool) && !segments.must_ask(5, MemoryKind::Virtual));
        for start in [0, 32, 64] {
            assert!(add(&mut segments, told(start * MIB, 32 * MIB, (start + 32) * MIB)));
        }
        segments.on_alloc(40 * MIB, 100);
        assert!(!segments.must_ask(40 * MIB, MemoryKind::Pool));
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
        let mut add = |told| {
            let asked = segments.ask();
            let grew = segments.add(told, asked, live.iter().copied(), 0, Site::default());
            (grew, current(&segments))
        };
        assert_eq!(add(told(0, 1000, 7000)), (true, 7020), "the pool had more before");
        assert_eq!(add(told(500, 1000, 7000)), (false, 7030), "it is not new; the first was not noticed to go");
        segments.on_free(100, 10);
        segments.on_free(5000, 20);
        assert_eq!(current(&segments), 7000);
        segments.cannot_tell(MemoryKind::Classic);
        assert!(!segments.must_ask(9999, MemoryKind::Classic) && segments.must_ask(9999, MemoryKind::Pool));
    }

    #[test]
    fn a_segment_that_came_just_now_is_not_the_one_that_went() {
        let mut segments = Segments::new();
        add(&mut segments, told(0, 32 * MIB, 32 * MIB));
        assert!(!add(&mut segments, told(64 * MIB, 32 * MIB, 32 * MIB)), "another one went unnoticed");
        assert_eq!(starts(&segments), [64]);
        assert_eq!(current(&segments), 32 * MIB);
    }

    #[test]
    fn of_answers_that_were_asked_for_at_once_the_later_one_takes_nothing_back() {
        let mut segments = Segments::new();
        add(&mut segments, told(0, 32 * MIB, 32 * MIB));
        let asked = segments.ask();
        let mut answer = |told| segments.add(told, asked, std::iter::empty(), 0, Site::default());
        assert!(answer(told(64 * MIB, 32 * MIB, 96 * MIB)));
        // From before the other thread's segment.
        assert!(!answer(told(32 * MIB, 32 * MIB, 64 * MIB)));
        assert_eq!(starts(&segments), [0, 32, 64]);
        assert_eq!(segments.reserved().unwrap().current, 96 * MIB);
        pool_has(&mut segments, 64 * MIB);
        assert_eq!(current(&segments), 64 * MIB, "it is newer");
    }

    #[test]
    fn what_is_there_at_a_new_beginning_is_neither_taken_nor_given_back() {
        let mut segments = Segments::new();
        for start in [0, 32] {
            add(&mut segments, told(start * MIB, 32 * MIB, (start + 32) * MIB));
        }
        pool_has(&mut segments, 32 * MIB);
        segments.begin_anew();
        let now = Stat { current: 32 * MIB, peak: 32 * MIB, allocated: 0, freed: 0 };
        assert_eq!((segments.reserved(), segments.log().len()), (Some(now), 0));
    }
}
