//! Splits a device's log into steps, each with its own peak.

use std::ops::Range;

use super::scopes::OpenByThread;
use crate::analysis::log::{allocated_at_start, entries, peak_record};
use crate::analysis::{Call, call_name, calls};
use crate::recording::DeviceView;
use crate::snapshot::{ContextId, DeviceSnapshot, Mark, SnapshotData};

/// The events that begin a new step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steps {
    /// Entering and leaving a scope on any thread. Steps without an alloc or free are left out.
    #[default]
    Scopes,
    /// Calls of operators, see [`OperatorSeries`](crate::analysis::OperatorSeries). Records between calls belong to no
    /// step. But if no call reaches the peak, the record that does is a step of its own.
    Operators,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) records: Range<usize>,
    /// The innermost scope of the thread whose mark began the step.
    pub(super) context: ContextId,
    /// The call's name with its number, if steps are calls.
    pub(super) call: Option<String>,
    /// How many records of the log had been applied at the step's (first) highest moment. That moment may be before the
    /// step's first record.
    pub(super) highest: usize,
    /// The device's total at that moment.
    pub(super) allocated: u64,
}

/// The steps, and how they were reduced to their limit.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Scopes deeper than this began no step; `None` if scopes of all depths did.
    pub(super) depth: Option<usize>,
    /// How many neighbouring steps were joined into each step; 1 if none were joined.
    pub(super) joined: usize,
}

/// At most `most` steps. If there are more, the deepest scopes begin no step, level by level. If the outermost scopes
/// alone make too many, neighbours are joined. A joined step keeps the highest moment of its parts, so the peak is
/// never lost.
pub(super) fn plan(data: &SnapshotData, device: &DeviceSnapshot, kind: Steps, most: usize) -> Plan {
    let most = most.max(1);
    let totals = LogTotals::of(device);
    let (parts, depth) = match kind {
        Steps::Scopes => by_scopes(data, device, most),
        Steps::Operators => (by_calls(data, device, &totals), None),
    };
    let joined = parts.len().div_ceil(most).max(1);
    let whole = |group: &[Part]| totals.highest(group);
    Plan { steps: parts.chunks(joined).filter_map(whole).collect(), depth, joined }
}

struct Part {
    records: Range<usize>,
    context: ContextId,
    call: Option<String>,
    /// How many records had been applied at the part's highest moment, and the total at that moment; `None` if unknown.
    highest: Option<(usize, u64)>,
}

impl Part {
    fn of_scope(records: Range<usize>, context: ContextId) -> Self {
        Self { records, context, call: None, highest: None }
    }
}

/// The calls in the order of their highest moments, which a replay needs because calls of several threads may overlap.
/// If no call has the peak, a part without a call has it.
fn by_calls(data: &SnapshotData, device: &DeviceSnapshot, totals: &LogTotals) -> Vec<Part> {
    let view = DeviceView::of(data, device);
    let calls = calls(&view);
    let named = |call: &Call<'_>| Part {
        records: call.records.clone(),
        context: call.context,
        call: Some(call_name(call.operator, call.number, call.is_backward)),
        highest: totals.0.get(call.peak_at + 1).map(|total| (call.peak_at + 1, *total)),
    };
    let mut parts: Vec<Part> = calls.iter().map(named).collect();
    let (at, peak) = totals.highest_of(0..device.records.len());
    if !calls.iter().any(|call| call.peak_at + 1 == at) {
        let (records, context) = (at.saturating_sub(1)..at, ContextId::ROOT);
        parts.push(Part { records, context, call: None, highest: Some((at, peak)) });
    }
    parts.sort_by_key(|part| part.highest);
    parts
}

fn by_scopes(data: &SnapshotData, device: &DeviceSnapshot, most: usize) -> (Vec<Part>, Option<usize>) {
    let depths = data.context_depths();
    let depth_of = |context: ContextId| depths.get(context.0 as usize).copied().unwrap_or(0);
    let deepest = device.marks.iter().map(|mark| depth_of(mark.context)).max().unwrap_or(0);
    let parts = |limit: usize| between_marks(device, |mark: &Mark| depth_of(mark.context) <= limit);
    let found = parts(deepest);
    if found.len() <= most || deepest <= 1 {
        return (found, None);
    }
    // A binary search, because more levels give more parts. The outermost scopes always begin parts.
    let (mut fits, mut too_much) = (1, deepest);
    while fits + 1 < too_much {
        let middle = usize::midpoint(fits, too_much);
        *(if parts(middle).len() <= most { &mut fits } else { &mut too_much }) = middle;
    }
    (parts(fits), Some(fits))
}

/// A part for the records between each mark and the next. A mark comes before records with the same time.
fn between_marks(device: &DeviceSnapshot, shown: impl Fn(&Mark) -> bool) -> Vec<Part> {
    let marks = || device.marks.iter().filter(|mark| shown(mark));
    let shown_marks: Vec<Mark> = marks().copied().collect();
    let mut open = OpenByThread::at_start(&shown_marks);
    let (mut from, mut context) = (0, open.any());
    let mut parts = Vec::new();
    for mark in &shown_marks {
        let later = device.records.get(from..).unwrap_or(&[]);
        let to = from + later.partition_point(|record| record.time_ns < mark.time_ns);
        parts.extend((to > from).then(|| Part::of_scope(from..to, context)));
        open.apply(mark);
        (from, context) = (to, open.innermost(mark.thread));
    }
    let end = device.records.len();
    parts.extend((end > from || parts.is_empty()).then(|| Part::of_scope(from..end, context)));
    parts
}

/// How many records of the log had been applied at the peak, if the log still has it.
pub(super) fn peak_position(device: &DeviceSnapshot) -> Option<usize> {
    if device.peak.seq.is_none() || device.peak.time_ns == 0 {
        return (device.overwritten == 0 && !device.records.is_empty()).then_some(0);
    }
    peak_record(device).map(|at| at + 1)
}

/// The device's total before each record and after the last. In a sample, estimates are clamped to the counted peak:
/// those before the peak are lower, and those after it not higher.
struct LogTotals(Vec<u64>);

impl LogTotals {
    fn of(device: &DeviceSnapshot) -> Self {
        let start = std::iter::once(allocated_at_start(device));
        let mut totals: Vec<u64> = start.chain(entries(device).map(|moment| moment.allocated)).collect();
        if device.is_sample() {
            let (peak, at) = (device.peak.bytes, peak_position(device));
            for (moment, total) in totals.iter_mut().enumerate() {
                let below = u64::from(at.is_some_and(|at| moment < at));
                *total = if at == Some(moment) { peak } else { (*total).min(peak.saturating_sub(below)) };
            }
        }
        Self(totals)
    }

    /// The first highest moment of a range of records.
    fn highest_of(&self, records: Range<usize>) -> (usize, u64) {
        let moments = self.0.get(records.start..=records.end).unwrap_or(&[]);
        let highest = moments.iter().enumerate().rev().max_by_key(|(_, total)| **total);
        highest.map_or((records.start, 0), |(at, total)| (records.start + at, *total))
    }

    /// Joins neighbouring parts into one step, with the label of the part that has the highest moment.
    fn highest(&self, group: &[Part]) -> Option<Step> {
        let highest = |part: &Part| part.highest.unwrap_or_else(|| self.highest_of(part.records.clone()));
        let part = group.iter().rev().max_by_key(|part| highest(part).1)?;
        let (highest, allocated) = highest(part);
        let (from, to) = (group.first()?.records.start, group.last()?.records.end);
        Some(Step { records: from..to, context: part.context, call: part.call.clone(), highest, allocated })
    }
}
