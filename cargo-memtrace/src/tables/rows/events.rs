//! Events over time: records, scopes entered and left, segments.

use std::io;

use memtrace_core::analysis::running_totals;
use memtrace_core::snapshot::{Mark, Record, RecordKind, Segment, SegmentRecord, StackId, Weight};

use crate::tables::{RunTables, TableWriter};

table! { EVENTS = "events", event(name: &str, position: u64, (record, weight, live): (&Record, Weight, u64)) {
    device: Text = name,
    position: Rising = position,
    time_ns: Rising = record.time_ns,
    action: Text = action(record.kind),
    block: Rising = record.alloc_seq.map(|seq| seq.get()),
    address: Number = record.address,
    size: Number = record.size,
    bytes: Number = weight.bytes,
    live_bytes: Rising = live,
    stack: Number = kept(record.stack),
    alloc_stack: Number = kept(record.alloc_stack),
    scope: Number = record.context.0,
    thread: Number = record.thread.number(),
    stream: Number = record.stream,
    memory: Text = record.memory.word(),
} }

pub(super) fn events(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.data.devices.iter().try_for_each(|device| {
        let (name, mut events) = (device.device.to_string(), (device.overwritten..).zip(running_totals(device)));
        events.try_for_each(|(position, entry)| event(out, &name, position, entry))
    })
}

fn action(kind: RecordKind) -> &'static str {
    if kind == RecordKind::Alloc { "alloc" } else { "free" }
}

fn kept(stack: StackId) -> Option<u32> {
    Some(stack.0).filter(|_| stack != StackId::NONE)
}

table! { MARKS = "marks", mark(mark: &Mark) {
    time_ns: Rising = mark.time_ns,
    thread: Number = mark.thread.number(),
    scope: Number = mark.context.0,
    is_enter: Flag = mark.enter,
} }

/// The marks (scopes entered and left) of the device that has the most of them. Every device has the same marks,
/// as far as its log reaches back.
pub(super) fn marks(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let most = run.data.devices.iter().rev().max_by_key(|device| device.marks.len());
    most.iter().flat_map(|device| &device.marks).try_for_each(|one| mark(out, one))
}

table! { SEGMENTS = "segments", segment(
    (name, action): (&str, &str), segment: &Segment, record: Option<&SegmentRecord>
) {
    device: Text = name,
    action: Text = action,
    time_ns: Number = record.map(|record| record.time_ns),
    address: Number = segment.address,
    size: Number = segment.size,
    is_estimated: Flag = segment.estimated,
    stack: Number = record.and_then(|record| kept(record.stack)),
    scope: Number = record.map(|record| record.context.0),
    thread: Number = record.map(|record| record.thread.number()),
} }

pub(super) fn segments(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        for record in &device.segment_records {
            let &SegmentRecord { address, size, estimated, kind, .. } = record;
            let of = Segment { address, size, estimated, ..Segment::default() };
            segment(out, (&name, action(kind)), &of, Some(record))?;
        }
        device.segments.iter().try_for_each(|of| segment(out, (&name, "live at the end"), of, None))?;
    }
    Ok(())
}
