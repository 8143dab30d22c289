//! A device's ledger: its live blocks, counters, log, peak and scopes. They change together under one lock.

use std::num::NonZeroU64;

mod copy;
mod driver_time;
pub(crate) mod graph_nodes;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod moment;
pub(crate) mod names;
mod options;
pub(crate) mod packed;
mod part;
pub(crate) mod peak;
pub(crate) mod ring;
mod sample;
pub(crate) mod sampling;
pub(crate) mod segments;
#[cfg(test)]
mod tests;
mod totals;
mod undo;
#[cfg(test)]
mod undo_tests;
mod weight_sum;
pub(crate) mod windows;

use std::mem::offset_of;
use std::time::Instant;

pub(crate) use copy::LedgerCopy;
use memtrace_core::snapshot::{Block, ContextId, GraphNode, Mark, OutOfMemory, Sampling, StackId, ThreadId};
pub(crate) use options::{AskOutside, LedgerOptions};
pub(crate) use part::{Checkpoint, Cursor, LogPart, Outside, Overwritten};
use sample::SampleTotals;
pub(crate) use undo::LedgerFree;

use self::driver_time::DriverTime;
use self::weight_sum::WeightSum;
use crate::record::clock::Clock;
use crate::record::event_site::EventSite;
use crate::record::ledger::live::{Entered, LiveBlock, LiveBlocks};
use crate::record::ledger::log::RecordLog;
use crate::record::ledger::moment::{Moment, Now};
use crate::record::ledger::names::{BlockLabel, NameTable};
use crate::record::ledger::peak::{PeakMoment, PeakTracker};
use crate::record::ledger::ring::Ring;
use crate::record::ledger::segments::{QueryTicket, SegmentAnswer, Segments};
use crate::record::ledger::windows::Windows;
use crate::record::memory::{OwnMap, own_map};

/// Limit on the number of refused allocations kept: a program may retry for ever.
const MAX_OOMS: usize = 256;

/// Fields that every event uses come first, here and in the parts with `repr(C)`, so that they share few cache lines.
/// The ledger is aligned, so that it shares no cache line with its lock, on which other threads spin (false sharing).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Ledger {
    seq: u64,
    /// Weight of the live blocks. `real_bytes` is their unweighted size.
    live_flow: WeightSum,
    real_bytes: u64,
    allocs: WeightSum,
    frees: WeightSum,
    /// Peaks since `reset_peak`: of the total, and of the number of live blocks.
    stat_peak: i64,
    stat_peak_parts: u64,
    /// Freed bytes of blocks from before the recording.
    unknown: u64,
    clock: Clock,
    windows: Windows,
    options: LedgerOptions,
    live: LiveBlocks,
    records: RecordLog,
    /// The last refused request. Cleared at the next request of its thread.
    last_refused: Option<(ThreadId, u64)>,
    peak: PeakTracker,
    /// `None` on devices whose driver reports no segments.
    pub(super) segments: Option<Segments>,
    began: Instant,
    checkpoints: Ring<Checkpoint>,
    marks: Ring<Mark>,
    ooms: Ring<OutOfMemory>,
    num_ooms: u64,
    num_alloc_retries: u64,
    pub(super) calls: DriverTime,
    names: NameTable,
    graph_nodes: Ring<GraphNode>,
    /// Value of `unknown` when the log was restarted.
    unknown_before: u64,
    /// Logged frees that the driver refused.
    refused_frees: u64,
    /// Used under sampling only.
    sample: SampleTotals,
    /// Frees that their threads may undo.
    kept_frees: OwnMap<ThreadId, LedgerFree>,
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
            records: RecordLog::new(options.log_shape()),
            checkpoints: part::checkpoints(options.max_entries),
            marks: Ring::new(options.max_entries),
            ooms: Ring::new(MAX_OOMS),
            num_ooms: 0,
            last_refused: None,
            num_alloc_retries: 0,
            segments: options.has_segments.then(Segments::new),
            calls: DriverTime::new(),
            peak: PeakTracker::new(options.below_threshold()),
            windows: Windows::new(),
            names: NameTable::new(),
            graph_nodes: Ring::new(graph_nodes::MOST),
            seq: 0,
            live_flow: WeightSum::default(),
            real_bytes: 0,
            allocs: WeightSum::default(),
            frees: WeightSum::default(),
            unknown: 0,
            unknown_before: 0,
            refused_frees: 0,
            sample: SampleTotals::default(),
            kept_frees: own_map(),
            stat_peak: 0,
            stat_peak_parts: 0,
            lost_blocks: 0,
            missed_frees: 0,
        }
    }

    /// Takes the current counts outside the ledger as the initial ones. Must be called before the first event.
    pub(crate) fn take_initial_counts(&mut self) {
        self.peak = PeakTracker::new(self.options.below_threshold());
        self.sample = SampleTotals::beginning_with(self.options.census());
    }

    /// Enters a block; false if there is no memory for it.
    pub(crate) fn alloc(&mut self, address: u64, size: u64, site: EventSite) -> bool {
        self.alloc_at(address, size, site, &Now)
    }

    pub(crate) fn alloc_at(&mut self, address: u64, size: u64, site: EventSite, moment: &impl Moment) -> bool {
        let block = Block {
            address,
            size,
            seq: NonZeroU64::new(self.seq + 1),
            time_ns: moment.time(&mut self.clock),
            stack: site.stack,
            context: site.context,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        match LiveBlock::of(&block) {
            LiveBlock::Packed(words) => self.enter(LiveBlock::Packed(words), block, moment),
            LiveBlock::Whole(block) => self.enter_whole(block, moment),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_whole(&mut self, block: Block, moment: &impl Moment) -> bool {
        self.enter(LiveBlock::Whole(block), block, moment)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter(&mut self, held: LiveBlock, block: Block, moment: &impl Moment) -> bool {
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
        self.after_alloc(&block, flow, moment);
        true
    }

    /// The free of the previous block at this address was missed.
    #[cold]
    fn alloc_again(&mut self, block: &Block) -> bool {
        let Block { address, size, stack, context, thread, stream, memory, .. } = *block;
        let site = EventSite { stack, context, thread, stream, memory };
        self.missed_frees += 1;
        self.free(address, EventSite { stack: StackId::NONE, ..site });
        self.alloc(address, size, site)
    }

    /// A ledger for another device of the same recording, with the scopes of this one.
    pub(crate) fn for_other_device(&self, options: LedgerOptions) -> Self {
        let ledger = Self::new(options, self.began);
        Self { marks: self.marks.copy(), windows: self.windows.for_other_device(), ..ledger }
    }

    /// Counts and stores a refused allocation, at the current time.
    pub(crate) fn refused(&mut self, oom: OutOfMemory) {
        self.note_retry(oom.size, oom.thread);
        self.last_refused = Some((oom.thread, oom.size));
        self.num_ooms += 1;
        let time_ns = self.now();
        self.ooms.push(OutOfMemory { time_ns, ..oom });
    }

    /// If the thread's last request was refused and had the same size, counts this one as a retry.
    fn note_retry(&mut self, size: u64, thread: ThreadId) {
        if let Some((_, bytes)) = self.last_refused.take_if(|(refused, _)| *refused == thread) {
            self.num_alloc_retries += u64::from(bytes == size);
        }
    }

    /// Takes a block out if it has this log position.
    pub(crate) fn free_if(&mut self, address: u64, seq: u64, site: EventSite) -> Option<LiveBlock> {
        self.live.get(address).filter(|block| block.raw_seq() == seq)?;
        self.free(address, site)
    }

    pub(crate) fn free(&mut self, address: u64, site: EventSite) -> Option<LiveBlock> {
        self.free_at(address, site, &Now)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn free_at(&mut self, address: u64, site: EventSite, moment: &impl Moment) -> Option<LiveBlock> {
        // Read first, so that the prefetched slot of the block arrives meanwhile.
        let time_ns = self.time_of_free(moment);
        match self.live.remove_packed(address) {
            Some(words) => Some(self.freed(LiveBlock::Packed(words), &site, time_ns)),
            None => self.free_whole(address, &site, time_ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_whole(&mut self, address: u64, site: &EventSite, time_ns: u64) -> Option<LiveBlock> {
        self.live.remove_whole(address).map(|block| self.freed(LiveBlock::Whole(block), site, time_ns))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn freed(&mut self, held: LiveBlock, site: &EventSite, time_ns: u64) -> LiveBlock {
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

    /// Logs the free of a block from before the recording.
    pub(crate) fn free_unknown(&mut self, address: u64, size: u64, site: EventSite) {
        self.free_unknown_at(address, size, site, &Now);
    }

    pub(crate) fn free_unknown_at(&mut self, address: u64, size: u64, site: EventSite, moment: &impl Moment) {
        self.unknown += size;
        let EventSite { thread, stream, memory, .. } = site;
        let block = Block { address, size, thread, stream, memory, ..Block::default() };
        let time_ns = self.time_of_free(moment);
        self.log_free(&LiveBlock::of(&block), &site, time_ns);
    }

    /// Names a live block. False if there is none at the address, or no room for the name.
    pub(crate) fn name(&mut self, address: u64, label: BlockLabel<'_>) -> bool {
        let Some(seq) = self.live.get(address).map(|block| block.raw_seq()) else { return false };
        if self.names.is_full() && !self.names.has(seq) {
            let (live, at_peak) = (&self.live, self.peak.freed_since());
            let is_live = |seq, address| live.get(address).is_some_and(|block| block.raw_seq() == seq);
            // Other blocks can only be in the log.
            self.names.make_room(|seq, address| is_live(seq, address) || at_peak.binary_search(&seq).is_ok());
        }
        self.names.give(seq, address, label)
    }

    /// Whether this size is at or above the threshold.
    pub(crate) fn takes(&self, size: u64) -> bool {
        size >= self.options.min_size
    }

    /// Whether this size is below the sampling interval.
    pub(crate) fn samples(&self, size: u64) -> bool {
        self.options.sampling.is_sampled(size)
    }

    /// Whether this is the sampling interval (0 without sampling).
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

    /// Restarts log, counters, peak and scopes at `began`. Live blocks stay, and their times become 0.
    pub(crate) fn restart(&mut self, began: Instant) {
        self.began = began;
        self.clock = Clock::new(began);
        self.records = RecordLog::new(self.options.log_shape());
        self.marks = Ring::new(self.options.max_entries);
        self.checkpoints = part::checkpoints(self.options.max_entries);
        self.ooms = Ring::new(MAX_OOMS);
        self.graph_nodes = Ring::new(graph_nodes::MOST);
        self.num_ooms = 0;
        self.num_alloc_retries = 0;
        self.refused_frees = 0;
        self.segments.iter_mut().for_each(Segments::restart);
        self.calls.forget();
        self.live.forget_times();
        let census = self.census();
        let total = self.total_of(&census);
        self.sample.restart(census);
        let now = PeakMoment { total, seq: self.seq, time_ns: 0, unknown_freed: self.unknown };
        self.peak.restart(now, self.options.below_threshold());
        let live = &self.live;
        self.names.restart(|seq, address| live.get(address).is_some_and(|block| block.raw_seq() == seq));
        self.windows.restart(total);
        self.allocs = WeightSum::default();
        self.frees = WeightSum::default();
        self.unknown_before = self.unknown;
        self.reset_peak_to(total);
    }

    /// Start or last restart of the recording.
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

    /// All live blocks, in no particular order.
    pub(crate) fn live_blocks(&self) -> impl Iterator<Item = Block> {
        self.live.iter()
    }

    pub(crate) fn live_block(&self, address: u64) -> Option<Block> {
        self.live.get(address)
    }

    pub(crate) fn live_len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn min_size(&self) -> u64 {
        self.options.min_size
    }

    /// Bytes by which the total may grow without a new peak. `None` if a new peak does not need the bytes below the
    /// threshold.
    pub(crate) fn below_peak(&self) -> Option<i64> {
        let counts = self.options.counts_below && self.options.min_size > 1;
        counts.then(|| self.peak.at.total.saturating_sub(self.recorded_total()))
    }

    /// Freed bytes of blocks from before the recording.
    pub(crate) fn unknown_freed(&self) -> u64 {
        self.unknown
    }

    /// Live bytes relative to the start, if every block is recorded.
    fn recorded_total(&self) -> i64 {
        self.live_flow.bytes as i64 - self.unknown as i64
    }

    #[inline]
    fn now(&mut self) -> u64 {
        self.clock.now()
    }

    /// Adds the segment of a block that is about to be entered. Returns whether the reserved bytes grew.
    pub(crate) fn segment(&mut self, answer: SegmentAnswer, ticket: QueryTicket, site: EventSite) -> bool {
        let time_ns = self.now();
        let live = self.live.iter();
        self.segments.as_mut().is_some_and(|segments| segments.add(answer, ticket, live, time_ns, site))
    }

    /// Calls `change` with the segments and the current time, if the driver reports any segments.
    pub(crate) fn change_segments(&mut self, change: impl FnOnce(&mut Segments, u64)) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            change(segments, time_ns);
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn after_alloc(&mut self, block: &Block, flow: WeightSum, moment: &impl Moment) {
        if self.options.sampling.is_on() {
            return self.after_counted_alloc(block, flow);
        }
        let now = self.count_alloc(block, flow, self.recorded_total());
        let options = self.options;
        self.peak.after_alloc(now, || moment.below_threshold(&options));
    }

    #[inline(always)]
    fn count_alloc(&mut self, block: &Block, flow: WeightSum, total: i64) -> PeakMoment {
        self.stat_peak = self.stat_peak.max(total);
        self.stat_peak_parts = self.stat_peak_parts.max(self.live_flow.parts);
        self.windows.on_alloc(block.context, flow, total);
        PeakMoment { total, seq: block.raw_seq(), time_ns: block.time_ns, unknown_freed: self.unknown }
    }

    #[inline(always)]
    fn flow_in(&mut self, size: u64) -> WeightSum {
        if self.samples(size) { self.sampled_in(size) } else { WeightSum::one(size) }
    }

    #[inline(always)]
    fn flow_out(&mut self, size: u64) -> WeightSum {
        if self.samples(size) { self.sampled_out(size) } else { WeightSum::one(size) }
    }

    fn logs_frees(&self) -> bool {
        self.options.max_entries > 0 && !self.options.skip_frees
    }

    /// The time of a free; 0 if frees are not logged.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn time_of_free(&mut self, moment: &impl Moment) -> u64 {
        if self.logs_frees() { moment.time(&mut self.clock) } else { 0 }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn log_free(&mut self, held: &LiveBlock, site: &EventSite, time_ns: u64) {
        if self.logs_frees() {
            self.records.free(held, time_ns, site, self.options.stacks_in_log);
        }
    }
}
