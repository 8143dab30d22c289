//! One device's account: live blocks, counters, log, peak and scopes, changed together.

use std::num::NonZeroU64;

mod copy;
mod part;
mod sample;
#[cfg(test)]
mod tests;
mod undo;
#[cfg(test)]
mod undo_tests;

use std::mem::offset_of;
use std::time::Instant;

pub(crate) use copy::LedgerCopy;
pub(crate) use part::{Checkpoint, Cursor, LogPart, Outside, Overwritten};
use sample::Sample;

use crate::record::calls::Calls;
use crate::record::clock::Clock;
use crate::record::flow::Flow;
use crate::record::live::{Entered, Held, LiveBlocks};
use crate::record::log::{Log, LogShape};
use crate::record::names::{Label, Names};
use crate::record::peak::{Moment, PeakTracker};
use crate::record::ring::Ring;
use crate::record::segments::{Asked, Segments, Told};
use crate::record::site::Site;
use crate::record::untraced;
use crate::record::windows::Windows;
use crate::snapshot::{Block, ContextId, Mark, OutOfMemory, Sampling, StackId, ThreadId};

/// Refused allocations that are kept, of those that a program may go on asking for.
const MAX_OOMS: usize = 256;

/// Says for `min_size` and the interval of a sample what bytes no ledger has, in blocks from the one up to the other and in
/// larger ones.
pub(crate) type AskOutside = fn(u64, u64) -> (u64, u64);

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
    /// Which of the blocks that are to be recorded are, and what they stand for.
    pub(crate) sampling: Sampling,
    /// Blocks below `min_size` exist and are counted elsewhere (the heap).
    pub(crate) counts_below: bool,
    /// Asked under sampling.
    pub(crate) outside: Option<AskOutside>,
    /// The allocator may tell of its segments.
    pub(crate) has_segments: bool,
    /// Records have streams, or frees have stacks.
    pub(crate) long_records: bool,
    /// The log will be filled: its address space is taken when it is made.
    pub(crate) reserved: bool,
}

impl LedgerOptions {
    /// Bytes below the threshold now.
    fn below_threshold(&self) -> u64 {
        if self.counts_below { untraced::below(self.min_size) } else { 0 }
    }

    fn log_shape(&self) -> LogShape {
        LogShape { capacity: self.max_entries, long: self.long_records, reserved: self.reserved }
    }
}

/// What every event looks at comes first, here and in the parts that are laid out in order: then it lies in few lines of
/// the processor's cache, and apart from the lock's, at which other threads may be looking.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Ledger {
    seq: u64,
    /// What is live: what its blocks stand for, and their real bytes.
    live_flow: Flow,
    real_bytes: u64,
    allocs: Flow,
    frees: Flow,
    /// Largest total and number of live blocks since `reset_peak`.
    stat_peak: i64,
    stat_peak_parts: u64,
    /// Bytes of blocks from before the recording that were freed.
    unknown: u64,
    clock: Clock,
    windows: Windows,
    options: LedgerOptions,
    live: LiveBlocks,
    records: Log,
    /// The last request that was refused, until its thread asks for something else.
    last_refused: Option<(ThreadId, u64)>,
    peak: PeakTracker,
    /// Not on devices whose allocator never tells.
    pub(super) segments: Option<Segments>,
    began: Instant,
    checkpoints: Ring<Checkpoint>,
    marks: Ring<Mark>,
    ooms: Ring<OutOfMemory>,
    num_ooms: u64,
    num_alloc_retries: u64,
    pub(super) calls: Calls,
    names: Names,
    /// The same when the log was begun anew.
    unknown_before: u64,
    /// Logged frees that were refused.
    refused_frees: u64,
    /// Not looked at unless a sample is recorded.
    sample: Sample,
    lost_blocks: u64,
    missed_frees: u64,
}

const _: () = assert!(offset_of!(Ledger, segments) <= 10 * 64);

impl Ledger {
    pub(crate) fn new(options: LedgerOptions, began: Instant) -> Self {
        Self {
            options,
            began,
            clock: Clock::new(began),
            live: if options.reserved {
                LiveBlocks::large(options.counts_below, options.max_entries)
            } else {
                LiveBlocks::new()
            },
            records: Log::new(options.log_shape()),
            checkpoints: part::checkpoints(options.max_entries),
            marks: Ring::new(options.max_entries),
            ooms: Ring::new(MAX_OOMS),
            num_ooms: 0,
            last_refused: None,
            num_alloc_retries: 0,
            segments: options.has_segments.then(Segments::new),
            calls: Calls::new(),
            peak: PeakTracker::new(options.below_threshold()),
            windows: Windows::new(),
            names: Names::new(),
            seq: 0,
            live_flow: Flow::default(),
            real_bytes: 0,
            allocs: Flow::default(),
            frees: Flow::default(),
            unknown: 0,
            unknown_before: 0,
            refused_frees: 0,
            sample: Sample::default(),
            stat_peak: 0,
            stat_peak_parts: 0,
            lost_blocks: 0,
            missed_frees: 0,
        }
    }

    /// What is counted beside it is what is there now. To be called before anything is entered.
    pub(crate) fn count_beside(&mut self) {
        self.peak = PeakTracker::new(self.options.below_threshold());
        self.sample = Sample::beginning_with(self.options.census());
    }

    /// Enters a block. False if there was no memory to: then it is not in this account.
    pub(crate) fn alloc(&mut self, address: u64, size: u64, site: Site) -> bool {
        let block = Block {
            address,
            size,
            seq: NonZeroU64::new(self.seq + 1),
            time_ns: self.now(),
            stack: site.stack,
            context: site.context,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        match Held::of(&block) {
            Held::Packed(words) => self.enter(Held::Packed(words), block),
            Held::Whole(block) => self.enter_whole(block),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_whole(&mut self, block: Block) -> bool {
        self.enter(Held::Whole(block), block)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter(&mut self, held: Held, block: Block) -> bool {
        let Block { address, size, .. } = block;
        match self.live.enter(&held) {
            Entered::New => {}
            Entered::Taken => return self.alloc_again(&block),
            Entered::NoRoom => {
                self.lost_blocks += 1;
                return false;
            }
        }
        self.seq += 1;
        self.note_retry(size, block.thread);
        if let Some(segments) = &mut self.segments {
            segments.on_alloc(address, size);
        }
        let flow = self.flow_in(size);
        self.live_flow.add(flow);
        self.real_bytes += size;
        self.allocs.add(flow);
        if self.options.max_entries > 0 && !self.options.skip_allocs {
            self.records.alloc(&held, self.options.stacks_in_log);
        }
        self.after_alloc(&block, flow);
        true
    }

    /// The block that is at this address was freed, and nobody said so.
    #[cold]
    fn alloc_again(&mut self, block: &Block) -> bool {
        let Block { address, size, stack, context, thread, stream, memory, .. } = *block;
        let site = Site { stack, context, thread, stream, memory };
        self.missed_frees += 1;
        self.free(address, Site { stack: StackId::NONE, ..site });
        self.alloc(address, size, site)
    }

    /// A ledger for another device of the same recording, which knows the scopes that this one knows.
    pub(crate) fn beside(&self, options: LedgerOptions) -> Self {
        let ledger = Self::new(options, self.began);
        Self { marks: self.marks.copy(), windows: self.windows.beside(), ..ledger }
    }

    /// An allocation was refused for lack of memory; its time is now.
    pub(crate) fn refused(&mut self, oom: OutOfMemory) {
        self.note_retry(oom.size, oom.thread);
        self.last_refused = Some((oom.thread, oom.size));
        self.num_ooms += 1;
        let time_ns = self.now();
        self.ooms.push(OutOfMemory { time_ns, ..oom });
    }

    /// Who was refused asks again for as much, or for something else.
    fn note_retry(&mut self, size: u64, thread: ThreadId) {
        if let Some((_, bytes)) = self.last_refused.take_if(|(refused, _)| *refused == thread) {
            self.num_alloc_retries += u64::from(bytes == size);
        }
    }

    /// Takes a block out, if the one at this address is the one with this position in the log.
    pub(crate) fn free_if(&mut self, address: u64, seq: u64, site: Site) -> Option<Held> {
        self.live.get(address).filter(|block| block.raw_seq() == seq)?;
        self.free(address, site)
    }

    /// Takes a block out, if it is here.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn free(&mut self, address: u64, site: Site) -> Option<Held> {
        // First of all: what is looked for next is on its way meanwhile.
        let time_ns = self.time_of_free();
        match self.live.remove_packed(address) {
            Some(words) => Some(self.freed(Held::Packed(words), &site, time_ns)),
            None => self.free_whole(address, &site, time_ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_whole(&mut self, address: u64, site: &Site, time_ns: u64) -> Option<Held> {
        self.live.remove_whole(address).map(|block| self.freed(Held::Whole(block), site, time_ns))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn freed(&mut self, held: Held, site: &Site, time_ns: u64) -> Held {
        let (address, size) = (held.address(), held.size());
        let flow = self.flow_out(size);
        self.live_flow.parts -= flow.parts;
        self.live_flow.bytes -= flow.bytes;
        self.real_bytes -= size;
        self.frees.add(flow);
        if let Some(segments) = &mut self.segments {
            segments.on_free(address, size);
        }
        self.windows.on_free(held.context(), flow.bytes);
        self.peak.after_free(&held, flow.bytes);
        self.log_free(&held, site, time_ns);
        held
    }

    /// A block was freed that was allocated before the recording.
    pub(crate) fn free_unknown(&mut self, address: u64, size: u64, site: Site) {
        self.unknown += size;
        let block = Block {
            address,
            size,
            seq: None,
            time_ns: 0,
            stack: StackId::NONE,
            context: ContextId::ROOT,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        let time_ns = self.time_of_free();
        self.log_free(&Held::of(&block), &site, time_ns);
    }

    /// Names the live block that begins at an address; false if none does, or there are too many names.
    pub(crate) fn name(&mut self, address: u64, label: Label<'_>) -> bool {
        let Some(seq) = self.live.get(address).map(|block| block.raw_seq()) else { return false };
        if self.names.is_full() && !self.names.has(seq) {
            let (live, at_peak) = (&self.live, self.peak.freed_since());
            let is_live = |seq, address| live.get(address).is_some_and(|block| block.raw_seq() == seq);
            // Others stand in the log at most.
            self.names.make_room(|seq, address| is_live(seq, address) || at_peak.binary_search(&seq).is_ok());
        }
        self.names.give(seq, address, label)
    }

    /// Are blocks of this size recorded here?
    pub(crate) fn takes(&self, size: u64) -> bool {
        size >= self.options.min_size
    }

    /// Are only some of them recorded?
    pub(crate) fn samples(&self, size: u64) -> bool {
        self.options.sampling.is_sampled(size)
    }

    /// Are blocks chosen at this interval, or 0 if all are recorded?
    pub(crate) fn is_sampled_at(&self, interval: u64) -> bool {
        self.options.sampling.interval().unwrap_or(0) == interval
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.options.sampling
    }

    pub(crate) fn enter_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        self.windows.enter(instance, context, self.total_for_scopes());
        self.mark(context, thread, true);
    }

    pub(crate) fn exit_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        if self.windows.exit(instance, self.total_for_scopes()) {
            self.mark(context, thread, false);
        }
    }

    fn mark(&mut self, context: ContextId, thread: ThreadId, enter: bool) {
        let time_ns = self.now();
        self.marks.push(Mark { time_ns, context, thread, enter });
    }

    /// Forgets the log, counters, peak and scopes; what is live stays. Its times are from before `began`
    /// and become 0.
    pub(crate) fn begin_anew(&mut self, began: Instant) {
        let (shape, marks) = (self.options.log_shape(), Ring::new(self.options.max_entries));
        (self.began, self.clock, self.records, self.marks) = (began, Clock::new(began), Log::new(shape), marks);
        self.checkpoints = part::checkpoints(self.options.max_entries);
        (self.ooms, self.num_ooms, self.num_alloc_retries) = (Ring::new(MAX_OOMS), 0, 0);
        self.refused_frees = 0;
        self.segments.iter_mut().for_each(Segments::begin_anew);
        self.calls.forget();
        self.live.forget_times();
        let census = self.census();
        let total = self.total_of(&census);
        self.sample.begin_anew(census);
        let now = Moment { total, seq: self.seq, time_ns: 0, unknown_freed: self.unknown };
        self.peak.begin_anew(now, self.options.below_threshold());
        let live = &self.live;
        self.names.begin_anew(|seq, address| live.get(address).is_some_and(|block| block.raw_seq() == seq));
        self.windows.begin_anew(total);
        (self.allocs, self.frees, self.unknown_before) = (Flow::default(), Flow::default(), self.unknown);
        self.reset_peak_to(total);
    }

    /// When the recording began, or was begun anew.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn reset_peak(&mut self) {
        self.reset_peak_to(self.total());
    }

    fn reset_peak_to(&mut self, total: i64) {
        self.stat_peak = total;
        self.stat_peak_parts = self.live_flow.parts;
        self.segments.iter_mut().for_each(Segments::reset_peak);
    }

    /// The live blocks, in no order.
    pub(crate) fn live_blocks(&self) -> impl Iterator<Item = Block> {
        self.live.iter()
    }

    pub(crate) fn live_len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn min_size(&self) -> u64 {
        self.options.min_size
    }

    /// Bytes of blocks from before the recording that were freed since.
    pub(crate) fn unknown_freed(&self) -> u64 {
        self.unknown
    }

    /// Bytes live relative to the start of the recording, if all blocks are recorded.
    fn recorded_total(&self) -> i64 {
        self.live_flow.bytes as i64 - self.unknown as i64
    }

    #[inline]
    fn now(&mut self) -> u64 {
        // Read under the device's lock, so that time never goes back within the log.
        self.clock.now()
    }

    /// A block is about to be entered in a segment that was not known; true if more is reserved now.
    pub(crate) fn segment(&mut self, told: Told, asked: Asked, site: Site) -> bool {
        let time_ns = self.now();
        let live = self.live.iter();
        self.segments.as_mut().is_some_and(|segments| segments.add(told, asked, live, time_ns, site))
    }

    /// A pool has so many bytes now.
    pub(crate) fn pool_has(&mut self, pool: u64, bytes: u64, asked: Asked, site: Site) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            segments.pool_has(pool, bytes, asked, time_ns, site);
        }
    }

    /// Empty segments of no pool are gone.
    pub(crate) fn drop_empty_segments(&mut self, site: Site) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            segments.drop_empty_of_none(time_ns, site);
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn after_alloc(&mut self, block: &Block, flow: Flow) {
        if self.options.sampling.is_on() {
            return self.after_counted_alloc(block, flow);
        }
        let now = self.count_alloc(block, flow, self.recorded_total());
        let options = self.options;
        self.peak.after_alloc(now, || options.below_threshold());
    }

    #[inline(always)]
    fn count_alloc(&mut self, block: &Block, flow: Flow, total: i64) -> Moment {
        self.stat_peak = self.stat_peak.max(total);
        self.stat_peak_parts = self.stat_peak_parts.max(self.live_flow.parts);
        self.windows.on_alloc(block.context, flow, total);
        Moment { total, seq: block.raw_seq(), time_ns: block.time_ns, unknown_freed: self.unknown }
    }

    /// What a new block of this size stands for.
    #[inline(always)]
    fn flow_in(&mut self, size: u64) -> Flow {
        if self.samples(size) { self.sampled_in(size) } else { Flow::one(size) }
    }

    /// The same of one that goes.
    #[inline(always)]
    fn flow_out(&mut self, size: u64) -> Flow {
        if self.samples(size) { self.sampled_out(size) } else { Flow::one(size) }
    }

    /// Are frees logged?
    fn logs_frees(&self) -> bool {
        self.options.max_entries > 0 && !self.options.skip_frees
    }

    /// Now, if it is to be logged.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn time_of_free(&mut self) -> u64 {
        if self.logs_frees() { self.now() } else { 0 }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn log_free(&mut self, held: &Held, site: &Site, time_ns: u64) {
        if self.logs_frees() {
            self.records.free(held, time_ns, site, self.options.stacks_in_log);
        }
    }
}
