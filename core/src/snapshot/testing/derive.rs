//! Test oracle: derives the state of a device from a story by the simplest possible computation.

use super::super::{
    Block, ContextId, ContextNode, Mark, MemoryStats, OutOfMemory, Peak, Record, RecordKind, Sampling, ScopeStats,
    Segment, SegmentRecord, Stat, ThreadId,
};
use super::story::StoryStep;

/// A story with the data that its replay needs.
pub(super) struct StoryReplay<'a> {
    pub(super) steps: &'a [StoryStep],
    /// Bytes live at the beginning.
    pub(super) before: u64,
    pub(super) sampling: Sampling,
    pub(super) contexts: &'a [ContextNode],
}

impl StoryReplay<'_> {
    pub(super) fn records(&self) -> Vec<Record> {
        records(self.steps).copied().collect()
    }

    pub(super) fn marks(&self) -> Vec<Mark> {
        self.steps.iter().filter_map(|step| if let StoryStep::Mark(mark) = step { Some(*mark) } else { None }).collect()
    }

    pub(super) fn ooms(&self) -> Vec<OutOfMemory> {
        self.steps
            .iter()
            .filter_map(|step| if let StoryStep::Refused(oom) = step { Some(*oom) } else { None })
            .collect()
    }

    pub(super) fn segment_records(&self) -> Vec<SegmentRecord> {
        segment_records(self.steps).copied().collect()
    }

    /// Blocks live after this many steps, in the order of their allocation.
    pub(super) fn live(&self, steps: usize) -> Vec<Block> {
        let mut live: Vec<Block> = Vec::new();
        for record in records(&self.steps[..steps]) {
            match record.kind {
                RecordKind::Alloc => live.push(record.block()),
                RecordKind::Free => live.retain(|block| block.seq != record.alloc_seq),
            }
        }
        live
    }

    /// Bytes from before the recording that are live after this many steps.
    pub(super) fn not_recorded(&self, steps: usize) -> u64 {
        let freed = records(&self.steps[..steps]).filter(|record| record.alloc_seq.is_none());
        self.before - freed.map(|record| record.size).sum::<u64>()
    }

    /// Segments that exist after this many steps, by address.
    pub(super) fn segments(&self, steps: usize) -> Vec<Segment> {
        let mut there: Vec<Segment> = Vec::new();
        for &SegmentRecord { address, size, kind, .. } in segment_records(&self.steps[..steps]) {
            match kind {
                RecordKind::Alloc => there.push(Segment { address, size, estimated: false, pool: None }),
                RecordKind::Free => there.retain(|segment| segment.address != address),
            }
        }
        there.sort_unstable_by_key(|segment| segment.address);
        there
    }

    /// The first maximum, which may be at the very beginning.
    pub(super) fn peak(&self) -> Peak {
        let totals = self.totals();
        let bytes = totals.iter().copied().max().unwrap_or(0);
        let steps = totals.iter().position(|total| *total == bytes).unwrap_or(0);
        let made = records(&self.steps[..steps]).next_back();
        Peak {
            bytes,
            time_ns: made.map_or(0, |alloc| alloc.time_ns),
            seq: made.and_then(|alloc| alloc.alloc_seq),
            blocks: self.live(steps),
            not_recorded: self.not_recorded(steps),
            below_threshold: 0,
        }
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let bytes = stat(self.before, self.steps.iter().map(|step| self.change(step)));
        let recorded = records(self.steps).filter(|record| record.alloc_seq.is_some());
        let parts = stat(0, recorded.map(|record| signed(record.kind, self.sampling.parts(record.size))));
        let [current, peak, allocated, freed] =
            [parts.current, parts.peak, parts.allocated, parts.freed].map(Sampling::whole);
        MemoryStats {
            allocated_bytes: bytes,
            active_bytes: bytes,
            reserved_bytes: self.reserved().unwrap_or(bytes),
            allocations: Stat { current, peak, allocated, freed },
            num_ooms: self.ooms().len() as u64,
            num_alloc_retries: self.retries(),
            ..MemoryStats::default()
        }
    }

    /// Segments and the blocks outside of them; `None` if the driver reported no segment.
    fn reserved(&self) -> Option<Stat> {
        segment_records(self.steps).next()?;
        let after = |steps| {
            let segments = self.segments(steps);
            let is_outside = |block: &Block| !segments.iter().any(|segment| holds(segment, block.address));
            let outside: u64 = self.live(steps).into_iter().filter(is_outside).map(|block| block.size).sum();
            segments.iter().map(|segment| segment.size).sum::<u64>() + outside
        };
        let levels: Vec<u64> = (0..=self.steps.len()).map(after).collect();
        Some(stat(0, levels.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64)))
    }

    /// Number of refused allocations that their thread repeats as its next allocation.
    fn retries(&self) -> u64 {
        let asked = |step: &StoryStep| match step {
            StoryStep::Record(record) if record.kind == RecordKind::Alloc => Some((record.thread, record.size, false)),
            StoryStep::Refused(oom) => Some((oom.thread, oom.size, true)),
            _ => None,
        };
        let asked: Vec<(ThreadId, u64, bool)> = self.steps.iter().filter_map(asked).collect();
        let next = |at: usize| asked[at + 1..].iter().find(|(thread, ..)| *thread == asked[at].0);
        let is_retried = |at: &usize| asked[*at].2 && next(*at).is_some_and(|(_, size, _)| *size == asked[*at].1);
        (0..asked.len()).filter(is_retried).count() as u64
    }

    /// The statistics of each context that was entered or allocated in.
    pub(super) fn scopes(&self) -> Vec<ScopeStats> {
        let contexts = (1..self.contexts.len() as u32).map(ContextId);
        contexts.map(|context| self.scope(context)).filter(|scope| scope.calls + scope.allocations > 0).collect()
    }

    fn scope(&self, context: ContextId) -> ScopeStats {
        let own = || records(self.steps).filter(|record| self.is_inside(record.context, context));
        let bytes = stat(0, own().map(|record| self.change(&StoryStep::Record(*record))));
        let allocs = own().filter(|record| record.kind == RecordKind::Alloc);
        let parts = allocs.map(|record| self.sampling.parts(record.size)).sum();
        ScopeStats {
            context,
            calls: self.entered(context).count() as u64,
            allocations: Sampling::whole(parts),
            allocated_bytes: bytes.allocated,
            own_peak: bytes.peak,
            total_peak: self.total_peak(context),
        }
    }

    /// The largest total while the scope was open.
    fn total_peak(&self, context: ContextId) -> Option<u64> {
        let totals = self.totals();
        self.entered(context).filter_map(|at| totals[at..=self.left(at)].iter().copied().max()).max()
    }

    /// The steps that entered the scope.
    fn entered(&self, context: ContextId) -> impl Iterator<Item = usize> {
        let enters =
            move |step: &StoryStep| matches!(step, StoryStep::Mark(mark) if mark.enter && mark.context == context);
        (0..self.steps.len()).filter(move |at| enters(&self.steps[*at]))
    }

    /// The step that left the scope that this step entered; the number of steps if none did.
    fn left(&self, entered: usize) -> usize {
        let StoryStep::Mark(scope) = self.steps[entered] else { panic!("no mark") };
        let mut open = 0;
        for (at, step) in self.steps.iter().enumerate().skip(entered) {
            match step {
                StoryStep::Mark(mark) if (mark.thread, mark.context) == (scope.thread, scope.context) => {
                    open += if mark.enter { 1 } else { -1 };
                }
                _ => {}
            }
            if open == 0 {
                return at;
            }
        }
        self.steps.len()
    }

    fn is_inside(&self, inner: ContextId, outer: ContextId) -> bool {
        inner == outer || (inner != ContextId::ROOT && self.is_inside(self.contexts[inner.0 as usize].parent, outer))
    }

    /// Bytes live at the beginning and after each step.
    fn totals(&self) -> Vec<u64> {
        let mut totals = vec![self.before];
        let mut now = self.before;
        for step in self.steps {
            now = now.checked_add_signed(self.change(step)).expect("no more is freed than is live");
            totals.push(now);
        }
        totals
    }

    /// What a step adds to the total.
    fn change(&self, step: &StoryStep) -> i64 {
        match step {
            StoryStep::Record(record) => signed(record.kind, self.sampling.bytes(record.size)),
            _ => 0,
        }
    }
}

fn records(steps: &[StoryStep]) -> impl DoubleEndedIterator<Item = &Record> {
    steps.iter().filter_map(|step| if let StoryStep::Record(record) = step { Some(record) } else { None })
}

fn segment_records(steps: &[StoryStep]) -> impl Iterator<Item = &SegmentRecord> {
    steps.iter().filter_map(|step| if let StoryStep::Segment(segment) = step { Some(segment) } else { None })
}

fn holds(segment: &Segment, address: u64) -> bool {
    segment.address <= address && address < segment.address + segment.size
}

fn signed(kind: RecordKind, amount: u64) -> i64 {
    let amount = i64::try_from(amount).expect("a size that a program may have");
    if kind == RecordKind::Alloc { amount } else { -amount }
}

/// The statistics of a quantity that starts at a value and changes.
fn stat(start: u64, changes: impl Iterator<Item = i64>) -> Stat {
    let mut stat = Stat { current: start, peak: start, ..Stat::default() };
    for change in changes {
        let amount = change.unsigned_abs();
        match change > 0 {
            true => (stat.current, stat.allocated) = (stat.current + amount, stat.allocated + amount),
            false => (stat.current, stat.freed) = (stat.current - amount, stat.freed + amount),
        }
        stat.peak = stat.peak.max(stat.current);
    }
    stat
}
