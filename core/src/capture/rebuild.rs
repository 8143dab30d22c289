//! Log replay: rebuilds a device's live blocks, peak and scopes from its records, if a capture has no list of them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::bytes::in_range;
use super::gaps::{self, Skip};
use super::part::LogStart;
use super::{Counters, Damage, by_seq};
use crate::hashed::HashSet;
use crate::snapshot::{
    Block, BlockName, BlockUses, ContextNode, Device, DeviceSnapshot, Mark, Peak, Record, RecordKind, Refused,
    Sampling, ScopeStats, Segment, Weight, leave_out, positions, refused_frees, scopes_of_log, segments,
};

/// The content of one device's chunks (not a part of a stream).
#[derive(Default)]
pub(super) struct DeviceParts {
    /// The data that goes into the snapshot as it was written.
    pub(super) device: DeviceSnapshot,
    pub(super) scopes: Option<Vec<ScopeStats>>,
    pub(super) segments: Option<Vec<Segment>>,
    /// By the block's `seq`.
    pub(super) names: BTreeMap<NonZeroU64, BlockName>,
    /// By the block's `seq`.
    pub(super) uses: BTreeMap<NonZeroU64, BlockUses>,
    /// Where the log begins; only a part of a stream says so.
    pub(super) start: LogStart,
    /// The blocks live before the first record.
    pub(super) live_at_start: Vec<Block>,
    pub(super) skips: Vec<Skip>,
    /// The live blocks after this number of records.
    pub(super) live: Option<(usize, Vec<Block>)>,
    /// The blocks live at the peak, with the `seq` of the alloc that reached the peak.
    peak: Option<(Option<NonZeroU64>, Vec<Block>)>,
    /// The blocks of the newest *peak* chunk, until the *counters* chunk after it names the peak's alloc.
    pub(super) new_peak: Option<Vec<Block>>,
    pub(super) counters: Counters,
}

impl DeviceParts {
    pub(super) fn gap(&mut self, missing: u64) -> Result<(), Damage> {
        let gone = self.device.overwritten + self.device.records.len() as u64 + missing;
        self.device.overwritten = in_range(gone)?;
        self.device.records.clear();
        self.skips.clear();
        Ok(())
    }

    pub(super) fn skip(&mut self, records: u64, marks: u64, to_ns: u64) {
        let (at, marks_at) = (self.device.records.len(), self.device.marks.len());
        self.skips.push(Skip { at, marks_at, records, marks, to_ns, live: None });
    }

    /// Returns the log, to which more records are added. Drops the segments and scopes that were read before, because
    /// they do not include these records.
    pub(super) fn new_records(&mut self) -> &mut Vec<Record> {
        self.segments = None;
        self.forget_scopes();
        &mut self.device.records
    }

    pub(super) fn new_marks(&mut self) -> &mut Vec<Mark> {
        self.forget_scopes();
        &mut self.device.marks
    }

    /// Forgets the scopes that were read, because they can be computed from the log. If the log lacks records, keeps
    /// them.
    fn forget_scopes(&mut self) {
        if self.skips.is_empty() && self.device.overwritten == 0 {
            self.scopes = None;
        }
    }

    pub(super) fn set_live(&mut self, blocks: Vec<Block>) {
        if let Some(skip) = self.skips.last_mut().filter(|skip| skip.live.is_none()) {
            skip.live = Some(blocks.clone());
        }
        if self.device.records.is_empty() && self.skips.is_empty() {
            self.live_at_start.clone_from(&blocks);
        }
        self.live = Some((self.device.records.len(), blocks));
    }

    pub(super) fn set_counters(&mut self, counters: Counters) {
        if let Some(blocks) = self.new_peak.take() {
            self.peak = Some((counters.peak.seq, blocks));
        }
        self.counters = counters;
    }

    /// Completes the device. `total_bytes` is at least the sum of the sizes of its records.
    pub(super) fn finish(
        mut self,
        device: Device,
        contexts: &[ContextNode],
        sampling: Sampling,
        total_bytes: u64,
    ) -> Result<DeviceSnapshot, Damage> {
        self.undo_refused_frees();
        self.leave_out_known_times();
        let (live, at_peak) = self.live_and_peak()?;
        self.bridge_skips()?;
        self.device.idle.sort_unstable_by_key(|idle| (idle.seq, idle.time.from_ns, idle.time.to_ns));
        // Two parts of a stream may have the same idle times.
        self.device.idle.dedup();
        let Counters { not_recorded, below_threshold, peak, stats } = self.counters;
        // A sampled block's weight is less than two intervals.
        let blocks = (self.device.records.len() + live.len() + at_peak.len()) as u64;
        let estimated = in_range(sampling.interval().unwrap_or(0).saturating_mul(2).saturating_mul(blocks))?;
        // Each gap adds frees and allocs of known blocks to the log, so their sizes count again.
        let times = if self.device.gaps.is_empty() { 1 } else { 3 };
        let total_bytes = in_range(times * total_bytes + estimated)?;
        in_range(stats.allocated_bytes.current.max(not_recorded) + total_bytes + 1)?;
        let log = &self.device.segment_records;
        let segments = self.segments.take();
        let segments =
            segments.unwrap_or_else(|| segments::cover(&self.device.records, &live, &segments::still_there(log), log));
        let mut device = DeviceSnapshot {
            device,
            sampling,
            live,
            not_recorded,
            below_threshold,
            peak: Peak { blocks: at_peak, ..peak },
            stats,
            segments,
            names: self.names.into_values().collect(),
            uses: self.uses.into_values().collect(),
            ..self.device
        };
        let at_peak: Weight = device.peak_weights().map(|(_, weight)| weight).sum();
        if at_peak.bytes + device.peak.not_recorded != device.peak.bytes {
            return Err(Damage("a peak whose blocks do not add up to it"));
        }
        device.scopes = self.scopes.take().unwrap_or_else(|| {
            let mut scopes = scopes_of_log(&device.records, &device.marks, contexts, sampling, device.live_by_sizes());
            // In a sample, totals of the log are estimates, but none was above the peak.
            if sampling.is_on() {
                for scope in &mut scopes {
                    scope.total_peak = scope.total_peak.map(|total| total.min(device.peak.bytes));
                }
            }
            scopes
        });
        Ok(device)
    }

    /// Drops the summaries of older times whose records are available. A log without lost records has all of them.
    fn leave_out_known_times(&mut self) {
        let starts_at =
            if self.device.overwritten == 0 { Some(0) } else { Some(self.start.time_ns).filter(|time| *time > 0) };
        self.device.older.retain(|time| starts_at.is_none_or(|start| time.from_ns < start));
    }

    /// Drops refused frees, and adds their blocks to the lists of live blocks that were written between the free and
    /// its undo record. After an undo record, the writer writes new lists of the live blocks and of the peak's blocks.
    fn undo_refused_frees(&mut self) {
        let refused = refused_frees(&self.device.records);
        if refused.is_empty() {
            return;
        }
        let mut at_skips = vec![Vec::new(); self.skips.len()];
        for Refused { free, again } in &refused {
            let Some(block) =
                self.device.records.get(*again).and_then(Record::refused).filter(|block| block.seq.is_some())
            else {
                continue;
            };
            // Only the last skip before the undo record matters, because no free takes as long as the time between two
            // skips.
            if let Some(last) = self.skips.partition_point(|skip| skip.at <= *again).checked_sub(1)
                && free.is_none_or(|free| self.skips[last].at > free)
            {
                at_skips[last].push(block);
            }
        }
        let before = refused.iter().filter(|Refused { free, .. }| free.is_none());
        let before = before.filter_map(|Refused { again, .. }| self.device.records.get(*again)?.refused());
        let before: Vec<Block> = before.filter(|block| block.seq.is_some()).collect();
        if self.device.overwritten > 0 {
            put_back(&mut self.live_at_start, &before);
        }
        for (skip, blocks) in self.skips.iter_mut().zip(&at_skips) {
            if let Some(live) = &mut skip.live {
                put_back(live, blocks);
            }
        }
        self.leave_out(&positions(&refused));
    }

    fn leave_out(&mut self, records: &[usize]) {
        leave_out(&mut self.device.records, records);
        let moved = |at: usize| at - records.partition_point(|position| *position < at);
        if let Some((at, _)) = &mut self.live {
            *at = moved(*at);
        }
        for skip in &mut self.skips {
            skip.at = moved(skip.at);
        }
    }

    /// Replaces skipped records by the frees and allocs that are known.
    fn bridge_skips(&mut self) -> Result<(), Damage> {
        if self.device.gaps.iter().any(|gap| gap.at > self.device.records.len() || gap.from_ns > gap.to_ns) {
            return Err(Damage("a gap outside the log"));
        }
        if self.skips.is_empty() {
            return Ok(());
        }
        if self.skips.iter().any(|skip| skip.live.is_none()) {
            return Err(Damage("skipped records without the live blocks behind them"));
        }
        let (records, gaps) = gaps::bridge(&self.device.records, &self.skips, &self.live_at_start, self.start.time_ns);
        self.device.marks = gaps::close_scopes(&self.device.marks, &self.skips, &gaps);
        (self.device.records, self.device.gaps) = (records, gaps);
        Ok(())
    }

    /// The blocks live after the last record, and those live at the peak. If records follow the last *live* chunk, the
    /// blocks are replayed from that chunk's list; otherwise they were written.
    fn live_and_peak(&mut self) -> Result<(Vec<Block>, Vec<Block>), Damage> {
        if self.live.is_none() && self.device.overwritten > 0 {
            return Err(Damage("a gap without the live blocks behind it"));
        }
        let (from, blocks) = self.live.take().unwrap_or_default();
        let later = self.device.records.get(from..).unwrap_or_default();
        let peak_seq = self.counters.peak.seq;
        let written = self.peak.take().filter(|(seq, _)| *seq == peak_seq).map(|(_, blocks)| blocks);
        if later.is_empty() {
            return Ok((blocks, written.unwrap_or_default()));
        }
        let mut live = gaps::by_address(&blocks);
        let mut at_peak = written;
        for record in later {
            gaps::apply(&mut live, record);
            if record.kind == RecordKind::Alloc && record.alloc_seq == peak_seq && at_peak.is_none() {
                at_peak = Some(by_seq(live.values().copied().collect()));
            }
        }
        Ok((by_seq(live.into_values().collect()), at_peak.unwrap_or_default()))
    }
}

/// Adds the blocks of `more` that are missing.
fn put_back(blocks: &mut Vec<Block>, more: &[Block]) {
    let mut known: HashSet<Option<NonZeroU64>> = blocks.iter().map(|block| block.seq).collect();
    blocks.extend(more.iter().filter(|block| known.insert(block.seq)));
    blocks.sort_unstable_by_key(|block| block.seq);
}
