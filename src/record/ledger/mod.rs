//! One device's account: live blocks, counters, log, peak and scopes, changed together.

mod copy;
#[cfg(test)]
mod tests;

use std::time::Instant;

pub(crate) use copy::{Cursor, LedgerCopy, LogPart};

use crate::record::calls::Calls;
use crate::record::memory::{OwnMap, own_map};
use crate::record::names::{Label, Names};
use crate::record::peak::{Moment, PeakTracker};
use crate::record::ring::Ring;
use crate::record::segments::{Segments, Told};
use crate::record::windows::Windows;
use crate::snapshot::{Block, ContextId, Mark, MemoryKind, OutOfMemory, Record, RecordKind, StackId, ThreadId};

/// Refused allocations that are kept, of those that a program may go on asking for.
const MAX_OOMS: usize = 256;

/// Who did something, where.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Site {
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    pub(crate) stream: u32,
    /// How the block is come by; on the heap there is one way.
    pub(crate) memory: MemoryKind,
}

/// What a ledger keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerOptions {
    /// Records that the log holds; 0 for none.
    pub(crate) max_entries: usize,
    /// Stacks stand in the log too, not only with the live blocks.
    pub(crate) stacks_in_log: bool,
    pub(crate) skip_allocs: bool,
    pub(crate) skip_frees: bool,
    /// Asked at every new peak for the bytes below the threshold.
    pub(crate) min_size: u64,
    /// Blocks below `min_size` exist and are counted elsewhere (the heap).
    pub(crate) counts_below: bool,
    /// The allocator may tell of its segments.
    pub(crate) has_segments: bool,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    options: LedgerOptions,
    began: Instant,
    live: OwnMap<u64, Block>,
    records: Ring<Record>,
    marks: Ring<Mark>,
    ooms: Ring<OutOfMemory>,
    num_ooms: u64,
    /// The last request that was refused, until its thread asks for something else.
    last_refused: Option<(ThreadId, u64)>,
    num_alloc_retries: u64,
    /// Not on devices whose allocator never tells.
    pub(super) segments: Option<Segments>,
    pub(super) calls: Calls,
    peak: PeakTracker,
    windows: Windows,
    names: Names,
    seq: u64,
    live_bytes: u64,
    allocs: Flow,
    frees: Flow,
    /// Frees of blocks from before the recording.
    unknown: Flow,
    /// Their bytes when the log was begun anew.
    unknown_before: u64,
    /// Largest total and number of live blocks since `reset_peak`.
    stat_peak: i64,
    stat_peak_blocks: u64,
    lost_blocks: u64,
    missed_frees: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    count: u64,
    bytes: u64,
}

impl Flow {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Ledger {
    pub(crate) fn new(options: LedgerOptions, began: Instant, below_threshold: u64) -> Self {
        Self {
            options,
            began,
            live: own_map(),
            records: Ring::new(options.max_entries),
            marks: Ring::new(options.max_entries),
            ooms: Ring::new(MAX_OOMS),
            num_ooms: 0,
            last_refused: None,
            num_alloc_retries: 0,
            segments: options.has_segments.then(Segments::new),
            calls: Calls::new(),
            peak: PeakTracker::new(below_threshold),
            windows: Windows::new(),
            names: Names::new(),
            seq: 0,
            live_bytes: 0,
            allocs: Flow::default(),
            frees: Flow::default(),
            unknown: Flow::default(),
            unknown_before: 0,
            stat_peak: 0,
            stat_peak_blocks: 0,
            lost_blocks: 0,
            missed_frees: 0,
        }
    }

    /// Enters a block. False if there was no memory to: then it is not in this account.
    pub(crate) fn alloc(&mut self, address: u64, size: u64, site: Site) -> bool {
        if self.live.try_reserve(1).is_err() {
            self.lost_blocks += 1;
            return false;
        }
        if self.live.contains_key(&address) {
            self.missed_frees += 1;
            self.free(address, Site { stack: StackId::NONE, ..site });
        }
        self.note_retry(size, site.thread);
        self.seq += 1;
        let block = Block {
            address,
            size,
            seq: self.seq,
            time_ns: self.now(),
            stack: site.stack,
            context: site.context,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        if let Some(segments) = &mut self.segments {
            segments.on_alloc(address, size);
        }
        self.live.insert(address, block);
        self.live_bytes += size;
        self.allocs.add(size);
        self.log_alloc(&block);
        self.after_alloc(&block);
        true
    }

    /// A ledger for another device of the same recording, which knows the scopes that this one knows.
    pub(crate) fn beside(&self, options: LedgerOptions) -> Self {
        let ledger = Self::new(options, self.began, 0);
        Self { marks: self.marks.copy(), windows: self.windows.beside(), ..ledger }
    }

    /// An allocation was refused for lack of memory; its time is now.
    pub(crate) fn refused(&mut self, oom: OutOfMemory) {
        self.note_retry(oom.size, oom.thread);
        self.last_refused = Some((oom.thread, oom.size));
        self.num_ooms += 1;
        self.ooms.push(OutOfMemory { time_ns: self.now(), ..oom });
    }

    /// Who was refused asks again for as much, or for something else.
    fn note_retry(&mut self, size: u64, thread: ThreadId) {
        if let Some((_, bytes)) = self.last_refused.take_if(|(refused, _)| *refused == thread) {
            self.num_alloc_retries += u64::from(bytes == size);
        }
    }

    /// Takes a block out, if the one at this address is the one with this position in the log.
    pub(crate) fn free_if(&mut self, address: u64, seq: u64, site: Site) -> Option<Block> {
        self.live.get(&address).filter(|block| block.seq == seq)?;
        self.free(address, site)
    }

    /// Takes a block out, if it is here.
    pub(crate) fn free(&mut self, address: u64, site: Site) -> Option<Block> {
        let block = self.live.remove(&address)?;
        self.live_bytes -= block.size;
        self.frees.add(block.size);
        if let Some(segments) = &mut self.segments {
            segments.on_free(address, block.size);
        }
        self.windows.on_free(block.context, block.size);
        self.peak.after_free(&block);
        self.log_free(&block, site);
        Some(block)
    }

    /// A block was freed that was allocated before the recording.
    pub(crate) fn free_unknown(&mut self, address: u64, size: u64, site: Site) {
        self.unknown.add(size);
        let block = Block {
            address,
            size,
            seq: 0,
            time_ns: 0,
            stack: StackId::NONE,
            context: ContextId::ROOT,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        self.log_free(&block, site);
    }

    /// A block that was just freed is live after all: a reallocation failed. It gets a new place in
    /// the log; the counts are as if nothing had happened.
    pub(crate) fn undo_free(&mut self, block: &Block) -> bool {
        let Block { stack, context, thread, stream, memory, .. } = *block;
        let kept = self.alloc(block.address, block.size, Site { stack, context, thread, stream, memory });
        self.frees.subtract(block.size);
        if kept {
            self.allocs.subtract(block.size);
            self.windows.uncount(block.context, block.size);
            self.names.renumber(block.seq, self.seq);
        }
        kept
    }

    /// The same for a block from before the recording.
    pub(crate) fn undo_free_unknown(&mut self, size: u64) {
        self.unknown.subtract(size);
    }

    /// Names the live block that begins at an address; false if none does, or there are too many names.
    pub(crate) fn name(&mut self, address: u64, label: Label<'_>) -> bool {
        let Some(seq) = self.live.get(&address).map(|block| block.seq) else { return false };
        if self.names.is_full() && !self.names.has(seq) {
            let (live, at_peak) = (&self.live, self.peak.freed_since());
            let is_live = |seq, address| live.get(&address).is_some_and(|block| block.seq == seq);
            // Others stand in the log at most.
            self.names.make_room(|seq, address| is_live(seq, address) || at_peak.binary_search(&seq).is_ok());
        }
        self.names.give(seq, address, label)
    }

    /// Are blocks of this size recorded here?
    pub(crate) fn takes(&self, size: u64) -> bool {
        size >= self.options.min_size
    }

    pub(crate) fn enter_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        self.windows.enter(instance, context, self.total());
        self.marks.push(Mark { time_ns: self.now(), context, thread, enter: true });
    }

    pub(crate) fn exit_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        if self.windows.exit(instance, self.total()) {
            self.marks.push(Mark { time_ns: self.now(), context, thread, enter: false });
        }
    }

    /// Forgets the log, counters, peak and scopes; what is live stays. Its times are from before `began`
    /// and become 0.
    pub(crate) fn begin_anew(&mut self, began: Instant, below_threshold: u64) {
        let capacity = self.options.max_entries;
        (self.began, self.records, self.marks) = (began, Ring::new(capacity), Ring::new(capacity));
        (self.ooms, self.num_ooms, self.num_alloc_retries) = (Ring::new(MAX_OOMS), 0, 0);
        self.segments.iter_mut().for_each(Segments::begin_anew);
        self.calls.forget();
        self.live.values_mut().for_each(|block| block.time_ns = 0);
        let now = Moment { total: self.total(), seq: self.seq, time_ns: 0, unknown_freed: self.unknown.bytes };
        self.peak.begin_anew(now, below_threshold);
        let live = &self.live;
        self.names.begin_anew(|seq, address| live.get(&address).is_some_and(|block| block.seq == seq));
        self.windows.begin_anew(self.total());
        (self.allocs, self.frees, self.unknown_before) = (Flow::default(), Flow::default(), self.unknown.bytes);
        self.reset_peak();
    }

    pub(crate) fn counts_below(&self) -> bool {
        self.options.counts_below
    }

    pub(crate) fn reset_peak(&mut self) {
        self.stat_peak = self.total();
        self.stat_peak_blocks = self.live.len() as u64;
        self.segments.iter_mut().for_each(Segments::reset_peak);
    }

    /// The live blocks, in no order.
    pub(crate) fn live_blocks(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.live.values()
    }

    pub(crate) fn min_size(&self) -> u64 {
        self.options.min_size
    }

    /// Bytes of blocks from before the recording that were freed since.
    pub(crate) fn unknown_freed(&self) -> u64 {
        self.unknown.bytes
    }

    /// Bytes live relative to the start of the recording.
    fn total(&self) -> i64 {
        self.live_bytes as i64 - self.unknown.bytes as i64
    }

    fn now(&self) -> u64 {
        // Read under the device's lock, so that time never goes back within the log.
        self.began.elapsed().as_nanos() as u64
    }

    /// A block is about to be entered in a segment that was not known; true if more is reserved now.
    pub(crate) fn segment(&mut self, told: Told, site: Site) -> bool {
        let time_ns = self.now();
        let live = self.live.values();
        self.segments.as_mut().is_some_and(|segments| segments.add(told, live, time_ns, site))
    }

    /// A pool has so many bytes now.
    pub(crate) fn pool_has(&mut self, pool: u64, bytes: u64, site: Site) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            segments.pool_has(pool, bytes, time_ns, site);
        }
    }

    /// Empty segments of no pool are gone.
    pub(crate) fn drop_empty_segments(&mut self, site: Site) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            segments.drop_empty_of_none(time_ns, site);
        }
    }

    fn after_alloc(&mut self, block: &Block) {
        let total = self.total();
        self.stat_peak = self.stat_peak.max(total);
        self.stat_peak_blocks = self.stat_peak_blocks.max(self.live.len() as u64);
        self.windows.on_alloc(block.context, block.size, total);
        let options = self.options;
        let below = || if options.counts_below { crate::record::untraced::below(options.min_size) } else { 0 };
        let now = Moment { total, seq: block.seq, time_ns: block.time_ns, unknown_freed: self.unknown.bytes };
        self.peak.after_alloc(now, below);
    }

    fn log_alloc(&mut self, block: &Block) {
        if self.options.max_entries > 0 && !self.options.skip_allocs {
            let stack = self.logged(block.stack);
            let record = record_of(block, RecordKind::Alloc, block.time_ns, block.thread, stack, stack);
            self.records.push(record);
        }
    }

    fn log_free(&mut self, block: &Block, site: Site) {
        if self.options.max_entries > 0 && !self.options.skip_frees {
            let (stack, alloc_stack) = (self.logged(site.stack), self.logged(block.stack));
            let record = record_of(block, RecordKind::Free, self.now(), site.thread, stack, alloc_stack);
            self.records.push(record);
        }
    }

    fn logged(&self, stack: StackId) -> StackId {
        if self.options.stacks_in_log { stack } else { StackId::NONE }
    }
}

fn record_of(
    block: &Block,
    kind: RecordKind,
    time_ns: u64,
    thread: ThreadId,
    stack: StackId,
    alloc_stack: StackId,
) -> Record {
    Record {
        time_ns,
        address: block.address,
        size: block.size,
        stack,
        alloc_stack,
        context: block.context,
        thread,
        alloc_seq: block.seq,
        stream: block.stream,
        kind,
        memory: block.memory,
    }
}
