//! A device's ledger: its live blocks, counters, log, peak and scopes. They change together under one lock.

#[cfg(test)]
mod case_tests;
mod copy;
mod driver_time;
mod events;
pub(crate) mod graph_nodes;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod moment;
pub(crate) mod names;
mod notes;
mod options;
pub(crate) mod packed;
mod part;
#[cfg(test)]
mod part_tests;
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
use memtrace_core::snapshot::{GraphNode, Mark, OutOfMemory, ThreadId};
pub(crate) use options::{AskOutside, LedgerOptions};
pub(crate) use part::{Checkpoint, Cursor, LogPart, Outside, Overwritten};
use sample::SampleTotals;
pub(crate) use undo::LedgerFree;

use self::driver_time::DriverTime;
use self::weight_sum::WeightSum;
use crate::record::clock::Clock;
use crate::record::ledger::live::LiveBlocks;
use crate::record::ledger::log::RecordLog;
use crate::record::ledger::names::NameTable;
use crate::record::ledger::peak::{PeakMoment, PeakTracker};
use crate::record::ledger::ring::Ring;
use crate::record::ledger::segments::Segments;
use crate::record::ledger::windows::Windows;
use crate::record::memory::{OwnMap, own_map};

/// Limit on the number of refused allocations that are kept, because a program may retry for ever.
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
    pub(in crate::record) unknown: u64,
    clock: Clock,
    windows: Windows,
    pub(in crate::record) options: LedgerOptions,
    pub(in crate::record) live: LiveBlocks,
    records: RecordLog,
    /// The last refused request. Cleared at the next request of its thread.
    last_refused: Option<(ThreadId, u64)>,
    peak: PeakTracker,
    /// `None` on devices whose driver reports no segments.
    pub(super) segments: Option<Segments>,
    /// Start or last restart of the recording.
    pub(in crate::record) began: Instant,
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
    pub(in crate::record) sample: SampleTotals,
    /// The last free of each thread that waited for the lock, if the thread may undo it.
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
            records: RecordLog::new(&options),
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

    /// Takes the current counts of the blocks outside the ledger as the counts at the recording's start. Must be
    /// called before the first event.
    pub(crate) fn take_initial_counts(&mut self) {
        self.peak = PeakTracker::new(self.options.below_threshold());
        self.sample = SampleTotals::beginning_with(self.options.census());
    }

    /// A ledger for another device of the same recording, with the scopes of this one.
    pub(crate) fn for_other_device(&self, options: LedgerOptions) -> Self {
        let ledger = Self::new(options, self.began);
        Self { marks: self.marks.copy(), windows: self.windows.for_other_device(), ..ledger }
    }

    /// Whether this size is at or above the threshold.
    pub(crate) fn takes(&self, size: u64) -> bool {
        size >= self.options.min_size
    }

    /// Whether only a sample of the blocks of this size is recorded, because the size is below the sampling interval.
    pub(crate) fn samples(&self, size: u64) -> bool {
        self.options.sampling.is_sampled(size)
    }

    /// Whether `interval` is the ledger's sampling interval, where 0 means no sampling.
    pub(crate) fn is_sampled_at(&self, interval: u64) -> bool {
        self.options.sampling.interval().unwrap_or(0) == interval
    }

    /// Restarts log, counters, peak and scopes at `began`. Live blocks stay, and their times become 0.
    pub(crate) fn restart(&mut self, began: Instant) {
        self.began = began;
        self.clock = Clock::new(began);
        self.records = RecordLog::new(&self.options);
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

    pub(crate) fn reset_peak(&mut self) {
        self.reset_peak_to(self.total());
    }

    fn reset_peak_to(&mut self, total: i64) {
        self.stat_peak = total;
        self.stat_peak_parts = self.live_flow.parts;
        self.segments.iter_mut().for_each(Segments::reset_peak);
    }

    /// Bytes by which the total may grow without a new peak. `None` if there is no threshold: a new peak then needs
    /// no count of the bytes below the threshold.
    pub(crate) fn below_peak(&self) -> Option<i64> {
        (self.options.min_size > 1).then(|| self.peak.at.total.saturating_sub(self.recorded_total()))
    }

    /// Recorded live bytes, relative to the start of the recording. With sampling, the blocks that were left out are
    /// missing.
    fn recorded_total(&self) -> i64 {
        self.live_flow.bytes as i64 - self.unknown as i64
    }

    #[inline]
    fn now(&mut self) -> u64 {
        self.clock.now()
    }
}
