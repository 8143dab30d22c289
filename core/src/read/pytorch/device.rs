//! One device of a recording, from its trace and its segments.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::contexts::Contexts;
use super::reconcile::{Reconciled, reconcile};
use super::rows::SnapshotValues;
use super::segments::{DeviceSegments, whole_pieces};
use super::stats::count;
use super::trace::{BEFORE, DeviceTrace};
use crate::read::pickle::PickleValue;
use crate::snapshot::{Block, ContextId, Device, DeviceSnapshot, Mark, Record, RecordKind, scopes_of_log, segments};

/// Data that all devices share.
pub(super) struct Common<'s, 'a> {
    pub(super) contexts: &'s mut Contexts,
    pub(super) values: &'s SnapshotValues<'a>,
    /// Microseconds since 1970.
    pub(super) started_us: u64,
    pub(super) frees_are_requests: bool,
}

/// How much of a device's history its log lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MissingFromLog {
    /// Blocks that existed before the log began.
    pub(super) before: usize,
    /// How many of those blocks are still live.
    pub(super) still_live: usize,
    /// Entries that contradict others.
    pub(super) misfits: u64,
    pub(super) has_times: bool,
}

/// Builds a device. `number` is its number in the file, which annotations also use.
pub(super) fn build(
    device: Device,
    number: u64,
    mut trace: DeviceTrace,
    placed: Option<&DeviceSegments>,
    shared: &mut Common<'_, '_>,
) -> (DeviceSnapshot, MissingFromLog) {
    let mut active = placed.map(|placed| placed.active.clone());
    if shared.frees_are_requests {
        active.iter_mut().for_each(|active| active.retain(|block| !block.is_pending));
    }
    let known = reconcile(&mut trace, active.as_deref());
    let marks = shared.contexts.marks(number, shared.started_us);
    let missing = MissingFromLog {
        before: known.before.len(),
        still_live: known.still_live,
        misfits: trace.misfits,
        has_times: trace.has_times || trace.records.is_empty(),
    };
    settle_times(&mut trace, shared.started_us);
    settle_contexts(&mut trace, &marks, shared);
    let before = known.before.len() as u64;
    for record in &mut trace.records {
        let seq = record.raw_seq();
        record.alloc_seq = NonZeroU64::new(if seq & BEFORE == 0 { before + seq } else { (seq & !BEFORE) + 1 });
    }
    let told = placed.map_or(&[][..], |placed| &placed.segments);
    let pieces = whole_pieces(&trace.segment_records);
    let live = live_blocks(&trace.records, &known);
    let mut snapshot = DeviceSnapshot {
        device,
        overwritten: before,
        ooms: trace.ooms,
        segments: segments::cover(&trace.records, &live, told, &pieces),
        segment_records: pieces,
        records: trace.records,
        live,
        marks,
        ..DeviceSnapshot::default()
    };
    count(&mut snapshot, &known.before, trace.num_ooms);
    let (end, nodes) = (snapshot.stats.allocated_bytes.current, &shared.contexts.nodes);
    snapshot.scopes = scopes_of_log(&snapshot.records, &snapshot.marks, nodes, snapshot.sampling, end);
    (snapshot, missing)
}

/// The live blocks in the order of their allocation.
fn live_blocks(records: &[Record], known: &Reconciled) -> Vec<Block> {
    let before = known.before.iter().skip(known.before.len() - known.still_live).copied();
    let logged = known.live.iter().filter_map(|position| records.get(*position as usize)).map(Record::block);
    before.chain(logged).collect()
}

/// Converts times from the file's microseconds to nanoseconds since the recording began.
fn settle_times(trace: &mut DeviceTrace, started_us: u64) {
    let started_us = if trace.has_times { started_us } else { trace.first_us().unwrap_or(0) };
    let records = trace.records.iter_mut().map(|record| &mut record.time_ns);
    let segments = trace.segment_records.iter_mut().map(|segment| &mut segment.time_ns);
    let refused = trace.ooms.iter_mut().map(|oom| &mut oom.time_ns);
    records.chain(segments).chain(refused).for_each(|time| *time = time.saturating_sub(started_us) * 1000);
}

/// Replaces the texts of metadata by contexts inside the open annotations.
fn settle_contexts(trace: &mut DeviceTrace, marks: &[Mark], shared: &mut Common<'_, '_>) {
    let mut known: HashMap<(ContextId, u32), ContextId> = HashMap::new();
    let mut settle = |context: ContextId, around: ContextId| match context.0.checked_sub(1) {
        None if shared.contexts.are_paths => ContextId::ROOT,
        None => around,
        Some(text) => *known.entry((around, text)).or_insert_with(|| {
            let metadata = shared.values.text(PickleValue::Text(text)).unwrap_or_default();
            shared.contexts.with_metadata(around, metadata)
        }),
    };
    let mut open = OpenMarks::of(marks);
    for at in 0..trace.records.len() {
        let Some(record) = trace.records.get(at).copied() else { break };
        let context = match record.kind {
            RecordKind::Alloc => settle(record.context, open.at(record.time_ns)),
            RecordKind::Free if record.raw_seq() & BEFORE != 0 => ContextId::ROOT,
            RecordKind::Free => {
                let alloc = trace.records.get(record.raw_seq() as usize - 1);
                alloc.map_or(ContextId::ROOT, |alloc| alloc.context)
            }
        };
        trace.records.get_mut(at).into_iter().for_each(|record| record.context = context);
    }
    let mut open = OpenMarks::of(marks);
    for segment in &mut trace.segment_records {
        segment.context = settle(segment.context, open.at(segment.time_ns));
    }
    let mut open = OpenMarks::of(marks);
    for oom in &mut trace.ooms {
        oom.context = settle(oom.context, open.at(oom.time_ns));
    }
}

/// The annotations that are open as time advances.
struct OpenMarks<'m> {
    marks: std::iter::Peekable<std::slice::Iter<'m, Mark>>,
    open: Vec<ContextId>,
}

impl<'m> OpenMarks<'m> {
    fn of(marks: &'m [Mark]) -> Self {
        Self { marks: marks.iter().peekable(), open: Vec::new() }
    }

    fn at(&mut self, time_ns: u64) -> ContextId {
        while let Some(mark) = self.marks.next_if(|mark| mark.time_ns <= time_ns) {
            if mark.enter {
                self.open.push(mark.context);
            } else if let Some(at) = self.open.iter().rposition(|open| *open == mark.context) {
                self.open.remove(at);
            }
        }
        self.open.last().copied().unwrap_or(ContextId::ROOT)
    }
}
