//! Columns beside those of the blocks: stacks, scopes over time, segments, operator calls.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::column::Coding::{Delta, Plain};
use super::column::ColumnStore;
use super::keys::UsedStacks;
use crate::analysis::{OperatorCall, operators, place};
use crate::attribute::Origin;
use crate::numbered::Numbered;
use crate::recording::DeviceView;
use crate::snapshot::{
    ContextId, DeviceSnapshot, Frame, OpenStack, RecordKind, Segment, SnapshotData, SymbolName, ThreadId,
};

/// Limits for the parts of a device other than its blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Rows of a table of the report.
    pub(super) rows: usize,
    /// Scopes over time.
    pub(super) spans: usize,
    pub(super) segments: usize,
    /// Operator calls.
    pub(super) calls: usize,
}

impl Most {
    /// The usual limits.
    pub(super) const USUAL: Self = Self { rows: 100, spans: 50_000, segments: 100_000, calls: 100_000 };
    /// The limits if the usual ones exceed the budget.
    pub(super) const LEAST: Self = Self { rows: 3, spans: 0, segments: 0, calls: 0 };
}

/// Writes the stacks as numbers of frames, innermost first. Returns the frames. Each has its function, its file and
/// line, and a number that says whose code it is.
pub(super) fn stacks(data: &SnapshotData, used: &UsedStacks, columns: &mut ColumnStore) -> Value {
    let mut names = Numbered::<(String, String), Option<u8>>::default();
    let (mut calls, mut depths) = (Vec::new(), Vec::new());
    for stack in used.ids() {
        let before = calls.len();
        for frame in data.stacks.frames(stack) {
            let number = names.number(named(frame, &data.process.working_dir));
            let of = || origin(Origin::of(&data.settings.rules, frame));
            names.update_row(number, |origin| _ = origin.get_or_insert_with(of));
            calls.push(number as u64);
        }
        depths.push((calls.len() - before) as u64);
    }
    columns.numbers("stack.depth", Plain, depths.into_iter());
    columns.numbers("stack.frames", Delta, calls.into_iter());
    names.rows().iter().map(|((name, place), origin)| json!([name, place, origin])).collect()
}

fn named(frame: &Frame, working_dir: &str) -> (String, String) {
    (SymbolName(frame.function_or_empty()).short(), place(frame, working_dir))
}

/// 0 for the user's code, 1 for a library's, 2 for a framework's, 3 for anything else.
fn origin(origin: Origin) -> u8 {
    match origin {
        Origin::Workspace => 0,
        Origin::Library => 1,
        Origin::Framework => 2,
        Origin::Std | Origin::Memtrace | Origin::Unknown => 3,
    }
}

/// Writes when scopes were open, as at most `most` spans. If there are more, outer scopes are kept before nested ones,
/// then long ones before short ones. Returns how many are left out.
pub(super) fn spans(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    end_ns: u64,
    most: usize,
    columns: &mut ColumnStore,
) -> usize {
    let mut open: HashMap<ThreadId, OpenStack<ContextId, (ContextId, u64)>> = HashMap::new();
    let mut spans: Vec<(ContextId, u64, u64)> = Vec::new();
    for mark in &device.marks {
        let stack = open.entry(mark.thread).or_default();
        if mark.enter {
            stack.enter(mark.context, (mark.context, mark.time_ns));
        } else if let Some((_, (context, from))) = stack.leave(mark.context) {
            spans.push((context, from, mark.time_ns));
        }
    }
    spans.extend(
        open.into_values().flat_map(OpenStack::into_values).map(|(context, from)| (context, from, end_ns.max(from))),
    );
    let depths = data.context_depths();
    let depth = |context: ContextId| depths.get(context.0 as usize).copied().unwrap_or(0);
    let left_out = spans.len().saturating_sub(most);
    if left_out > 0 {
        spans.sort_by_key(|(context, from, to)| (depth(*context), std::cmp::Reverse(to - from), *from));
        spans.truncate(most);
    }
    spans.sort_by_key(|(context, from, _)| (*from, depth(*context), *context));
    columns.numbers("span.context", Plain, spans.iter().map(|span| span.0.0.into()));
    columns.numbers("span.from", Delta, spans.iter().map(|span| span.1));
    columns.numbers("span.life", Plain, spans.iter().map(|span| span.2 - span.1));
    left_out
}

/// Writes the segments with their lifetimes, at most `most`, the largest first. The lifetime is 0 for segments that
/// exist at the end. Returns how many are left out.
pub(super) fn segments(device: &DeviceSnapshot, most: usize, columns: &mut ColumnStore) -> usize {
    let mut rows: Vec<(Segment, u64, u64)> = Vec::new();
    let mut there: HashMap<u64, usize> = HashMap::new();
    let row = |address, size, estimated| Segment { address, size, estimated, pool: None };
    for record in &device.segment_records {
        match record.kind {
            RecordKind::Alloc => {
                there.insert(record.address, rows.len());
                rows.push((row(record.address, record.size, false), record.time_ns, 0));
            }
            RecordKind::Free => {
                let known = there.remove(&record.address).unwrap_or_else(|| {
                    rows.push((row(record.address, record.size, record.estimated), 0, 0));
                    rows.len() - 1
                });
                if let Some(row) = rows.get_mut(known) {
                    row.2 = record.time_ns.saturating_sub(row.1) + 1;
                }
            }
        }
    }
    let known = |segment: &&Segment| !there.contains_key(&segment.address);
    rows.extend(device.segments.iter().filter(known).map(|segment| (*segment, 0, 0)));
    let left_out = rows.len().saturating_sub(most);
    if left_out > 0 {
        rows.sort_by_key(|(segment, from, _)| (std::cmp::Reverse(segment.size), segment.address, *from));
        rows.truncate(most);
    }
    rows.sort_by_key(|(segment, from, _)| (segment.address, *from));
    columns.numbers("segment.address", Delta, rows.iter().map(|row| row.0.address));
    columns.numbers("segment.size", Plain, rows.iter().map(|row| row.0.size));
    columns.numbers("segment.from", Plain, rows.iter().map(|row| row.1));
    columns.numbers("segment.life", Plain, rows.iter().map(|row| row.2));
    columns.numbers("segment.estimated", Plain, rows.iter().map(|row| row.0.estimated.into()));
    left_out
}

/// Writes the operator calls, at most `most`: those that changed the memory most. Returns their texts, how many are
/// listed, and how many are left out.
pub(super) fn calls(device: &DeviceView<'_>, most: usize, columns: &mut ColumnStore) -> (Value, usize, usize) {
    let mut calls = operators(device).calls;
    let left_out = calls.len().saturating_sub(most);
    if left_out > 0 {
        calls.sort_by_key(|call| {
            std::cmp::Reverse(call.added.unsigned_abs().max(call.peak.saturating_sub(call.before)))
        });
        calls.truncate(most);
        calls.sort_by_key(|call| (call.begin_ns, call.end_ns));
    }
    let mut texts = Numbered::<Arc<str>>::default();
    let mut text = |name: &str, of: fn(&OperatorCall) -> &Arc<str>, columns: &mut ColumnStore| {
        columns.numbers(name, Plain, calls.iter().map(|call| texts.number(of(call).clone()) as u64));
    };
    text("call.operator", |call| &call.operator, columns);
    text("call.line", |call| &call.line, columns);
    text("call.scope", |call| &call.scope, columns);
    columns.numbers("call.number", Plain, calls.iter().map(|call| call.number));
    columns.numbers("call.backward", Plain, calls.iter().map(|call| call.is_backward.into()));
    columns.numbers("call.begin", Delta, calls.iter().map(|call| call.begin_ns));
    columns.numbers("call.life", Plain, calls.iter().map(|call| call.end_ns.saturating_sub(call.begin_ns)));
    columns.numbers("call.allocations", Plain, calls.iter().map(|call| call.allocations));
    columns.signed("call.added", calls.iter().map(|call| call.added));
    columns.numbers("call.before", Plain, calls.iter().map(|call| call.before));
    columns.numbers("call.peak", Plain, calls.iter().map(|call| call.peak));
    (texts.keys().map(|text| &**text).collect(), calls.len(), left_out)
}
