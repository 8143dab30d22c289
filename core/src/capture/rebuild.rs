//! A device's part of a recording from the chunks of a capture: what was not written follows from
//! the records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::bytes::in_range;
use super::gaps::{self, Skip};
use super::{Counters, Damage, Driver, by_seq};
use crate::snapshot::{
    Block, BlockName, CallTime, ContextNode, Counted, Device, DeviceSnapshot, Gap, Mark, OutOfMemory, Peak, Record,
    RecordKind, Refused, Sampling, ScopeStats, Segment, SegmentRecord, Weight, leave_out, positions, refused_frees,
    scopes_of_log, segments,
};

/// What the chunks say of one device.
pub(super) struct DeviceParts {
    pub(super) device: Device,
    records: Vec<Record>,
    marks: Vec<Mark>,
    pub(super) scopes: Option<Vec<ScopeStats>>,
    pub(super) segments: Option<Vec<Segment>>,
    pub(super) ooms: Vec<OutOfMemory>,
    pub(super) driver: Driver,
    pub(super) segment_records: Vec<SegmentRecord>,
    pub(super) calls: Vec<CallTime>,
    /// By the block's number.
    pub(super) names: BTreeMap<NonZeroU64, BlockName>,
    pub(super) lost_names: u64,
    overwritten: u64,
    skips: Vec<Skip>,
    /// As they were in the snapshot that was written.
    pub(super) gaps: Vec<Gap>,
    /// What was live after so many records.
    live: Option<(usize, Vec<Block>)>,
    /// What was live at the peak whose alloc had this number.
    peak: Option<(Option<NonZeroU64>, Vec<Block>)>,
    /// The same, until the counters say which peak that was.
    new_peak: Option<Vec<Block>>,
    counters: Counters,
}

impl DeviceParts {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            records: Vec::new(),
            marks: Vec::new(),
            scopes: None,
            segments: None,
            ooms: Vec::new(),
            driver: Driver::default(),
            segment_records: Vec::new(),
            calls: Vec::new(),
            names: BTreeMap::new(),
            lost_names: 0,
            overwritten: 0,
            skips: Vec::new(),
            gaps: Vec::new(),
            live: None,
            peak: None,
            new_peak: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn gap(&mut self, missing: u64) -> Result<(), Damage> {
        let gone = self.overwritten + self.records.len() as u64 + missing;
        self.overwritten = in_range(gone)?;
        self.records.clear();
        self.skips.clear();
        Ok(())
    }

    pub(super) fn skip(&mut self, records: u64, marks: u64, to_ns: u64) {
        let (at, marks_at) = (self.records.len(), self.marks.len());
        self.skips.push(Skip { at, marks_at, records, marks, to_ns, live: None });
    }

    /// Where more records go; what was said of those before no longer holds.
    pub(super) fn new_records(&mut self) -> &mut Vec<Record> {
        self.segments = None;
        self.forget_scopes();
        &mut self.records
    }

    pub(super) fn new_marks(&mut self) -> &mut Vec<Mark> {
        self.forget_scopes();
        &mut self.marks
    }

    /// They follow from the log, unless there is something missing in it.
    fn forget_scopes(&mut self) {
        if self.skips.is_empty() {
            self.scopes = None;
        }
    }

    pub(super) fn set_live(&mut self, blocks: Vec<Block>) {
        if let Some(skip) = self.skips.last_mut().filter(|skip| skip.live.is_none()) {
            skip.live = Some(blocks.clone());
        }
        self.live = Some((self.records.len(), blocks));
    }

    pub(super) fn set_peak(&mut self, blocks: Vec<Block>) {
        self.new_peak = Some(blocks);
    }

    pub(super) fn set_counters(&mut self, counters: Counters) {
        if let Some(blocks) = self.new_peak.take() {
            self.peak = Some((counters.peak.seq, blocks));
        }
        self.counters = counters;
    }

    pub(super) fn set_counted(&mut self, counted: Counted) {
        self.counters.stats.counted = Some(counted);
    }

    /// `total_bytes` is more than the sizes of its records.
    pub(super) fn finish(
        mut self,
        contexts: &[ContextNode],
        sampling: Sampling,
        total_bytes: u64,
    ) -> Result<DeviceSnapshot, Damage> {
        self.undo_refused_frees();
        let (live, at_peak) = self.live_and_peak()?;
        self.bridge_skips()?;
        let Counters { not_recorded, below_threshold, peak, stats } = self.counters;
        // A block of a sample stands for less than two intervals.
        let blocks = (self.records.len() + live.len() + at_peak.len()) as u64;
        let estimated = in_range(sampling.interval().unwrap_or(0).saturating_mul(2).saturating_mul(blocks))?;
        // Where records were skipped, what is known of them stands in the log once more.
        let times = if self.gaps.is_empty() { 1 } else { 3 };
        let total_bytes = in_range(times * total_bytes + estimated)?;
        in_range(stats.allocated_bytes.current.max(not_recorded) + total_bytes + 1)?;
        let log = &self.segment_records;
        let segments = self.segments.take();
        let segments =
            segments.unwrap_or_else(|| segments::cover(&self.records, &live, &segments::still_there(log), log));
        let mut device = DeviceSnapshot {
            device: self.device,
            sampling,
            records: self.records,
            overwritten: self.overwritten,
            gaps: self.gaps,
            live,
            not_recorded,
            below_threshold,
            peak: Peak { blocks: at_peak, ..peak },
            stats,
            ooms: self.ooms,
            pool: self.driver.pool,
            memory: self.driver.memory,
            segment_records: self.segment_records,
            calls: self.calls,
            segments,
            scopes: Vec::new(),
            marks: self.marks,
            names: self.names.into_values().collect(),
            lost_names: self.lost_names,
        };
        if device.peak_weights().map(|(_, weight)| weight).sum::<Weight>().bytes + device.peak.not_recorded
            != device.peak.bytes
        {
            return Err(Damage("a peak whose blocks do not add up to it"));
        }
        device.scopes = self.scopes.take().unwrap_or_else(|| {
            let mut scopes = scopes_of_log(&device.records, &device.marks, contexts, sampling, device.live_by_sizes());
            // The log of a sample is higher or lower by chance, but never was more live than at the peak.
            let all = scopes.iter_mut().filter(|_| sampling.is_on());
            all.for_each(|scope| scope.total_peak = scope.total_peak.map(|total| total.min(device.peak.bytes)));
            scopes
        });
        Ok(device)
    }

    /// A free that was refused never was: its block was there when the live ones were written meanwhile.
    fn undo_refused_frees(&mut self) {
        let refused = refused_frees(&self.records);
        if refused.is_empty() {
            return;
        }
        let (mut at_skips, mut at_end) = (vec![Vec::new(); self.skips.len()], Vec::new());
        for Refused { free, again } in &refused {
            let Some(block) = self.records.get(*again).and_then(Record::refused).filter(|block| block.seq.is_some())
            else {
                continue;
            };
            let was_out = |at: usize| at <= *again && free.is_none_or(|free| at > free);
            // Not in earlier ones: no free takes as long as from one skip to the next.
            let last = self.skips.partition_point(|skip| skip.at <= *again).checked_sub(1);
            let last = last.filter(|last| self.skips.get(*last).is_some_and(|skip| was_out(skip.at)));
            last.and_then(|last| at_skips.get_mut(last)).into_iter().for_each(|blocks| blocks.push(block));
            at_end.extend(self.live.as_ref().filter(|(at, _)| was_out(*at)).map(|_| block));
        }
        for (skip, blocks) in self.skips.iter_mut().zip(&at_skips) {
            skip.live.iter_mut().for_each(|live| put_back(live, blocks));
        }
        self.live.iter_mut().for_each(|(_, live)| put_back(live, &at_end));
        if let Some((seq, at_peak)) = &mut self.peak {
            at_end.retain(|block| block.seq <= *seq);
            put_back(at_peak, &at_end);
        }
        self.leave_out(&positions(&refused));
    }

    fn leave_out(&mut self, records: &[usize]) {
        leave_out(&mut self.records, records);
        let moved = |at: usize| at - records.partition_point(|position| *position < at);
        self.live.iter_mut().for_each(|(at, _)| *at = moved(*at));
        self.skips.iter_mut().for_each(|skip| skip.at = moved(skip.at));
    }

    /// Puts what is known of skipped records in their place.
    fn bridge_skips(&mut self) -> Result<(), Damage> {
        if self.gaps.iter().any(|gap| gap.at > self.records.len() || gap.from_ns > gap.to_ns) {
            return Err(Damage("a gap that is not in the log"));
        }
        if self.skips.is_empty() {
            return Ok(());
        }
        if self.skips.iter().any(|skip| skip.live.is_none()) {
            return Err(Damage("skipped records without what was live behind them"));
        }
        let (records, gaps) = gaps::bridge(&self.records, &self.skips);
        self.marks = gaps::close_scopes(&self.marks, &self.skips, &gaps);
        (self.records, self.gaps) = (records, gaps);
        Ok(())
    }

    /// What is live after the last record, and what was at the peak: as written, or replayed from
    /// where it was written last.
    fn live_and_peak(&mut self) -> Result<(Vec<Block>, Vec<Block>), Damage> {
        if self.live.is_none() && self.overwritten > 0 {
            return Err(Damage("a gap without what was live behind it"));
        }
        let (from, blocks) = self.live.take().unwrap_or_default();
        let later = self.records.get(from..).unwrap_or_default();
        let peak_seq = self.counters.peak.seq;
        let written = self.peak.take().filter(|(seq, _)| *seq == peak_seq).map(|(_, blocks)| blocks);
        if later.is_empty() {
            return Ok((blocks, written.unwrap_or_default()));
        }
        let mut live: HashMap<u64, Block> = blocks.into_iter().map(|block| (block.address, block)).collect();
        let mut at_peak = written;
        for record in later {
            match record.kind {
                RecordKind::Alloc => live.insert(record.address, record.block()),
                RecordKind::Free => live.remove(&record.address),
            };
            if record.kind == RecordKind::Alloc && record.alloc_seq == peak_seq && at_peak.is_none() {
                at_peak = Some(by_seq(live.values().copied().collect()));
            }
        }
        Ok((by_seq(live.into_values().collect()), at_peak.unwrap_or_default()))
    }
}

/// Those that are not among them.
fn put_back(blocks: &mut Vec<Block>, more: &[Block]) {
    let mut known: HashSet<Option<NonZeroU64>, RandomState> = blocks.iter().map(|block| block.seq).collect();
    let before = blocks.len();
    blocks.extend(more.iter().filter(|block| known.insert(block.seq)));
    if blocks.len() > before {
        blocks.sort_unstable_by_key(|block| block.seq);
    }
}
