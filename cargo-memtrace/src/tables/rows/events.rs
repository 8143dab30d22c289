//! What happened over time: records, scopes entered and left, segments.

use std::io;

use memtrace_core::analysis::running_totals;
use memtrace_core::snapshot::{RecordKind, StackId};

use crate::tables::ColumnKind::{Flag, Number, Rising, Text};
use crate::tables::{RunTables, TableCell, TableSpec, TableWriter};

pub(super) const EVENTS: TableSpec = TableSpec {
    name: "events",
    columns: &[
        ("device", Text),
        ("position", Rising),
        ("time_ns", Rising),
        ("action", Text),
        ("block", Rising),
        ("address", Number),
        ("size", Number),
        ("bytes", Number),
        ("live_bytes", Rising),
        ("stack", Number),
        ("alloc_stack", Number),
        ("scope", Number),
        ("thread", Number),
        ("stream", Number),
        ("memory", Text),
    ],
};

pub(super) fn events(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        for (position, (record, weight, live)) in (device.overwritten..).zip(running_totals(device)) {
            out.row(&[
                (&name).into(),
                position.into(),
                record.time_ns.into(),
                action(record.kind).into(),
                record.alloc_seq.map(|seq| seq.get()).into(),
                record.address.into(),
                record.size.into(),
                weight.bytes.into(),
                live.into(),
                kept(record.stack),
                kept(record.alloc_stack),
                record.context.0.into(),
                record.thread.number().into(),
                record.stream.into(),
                record.memory.word().into(),
            ])?;
        }
    }
    Ok(())
}

fn action(kind: RecordKind) -> &'static str {
    if kind == RecordKind::Alloc { "alloc" } else { "free" }
}

fn kept(stack: StackId) -> TableCell<'static> {
    Some(stack.0).filter(|_| stack != StackId::NONE).into()
}

pub(super) const MARKS: TableSpec = TableSpec {
    name: "marks",
    columns: &[("time_ns", Rising), ("thread", Number), ("scope", Number), ("is_enter", Flag)],
};

/// Those of the device with the most: every device has the same, as far as its log reaches back.
pub(super) fn marks(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let most = run.data.devices.iter().rev().max_by_key(|device| device.marks.len());
    most.iter().flat_map(|device| &device.marks).try_for_each(|mark| {
        out.row(&[mark.time_ns.into(), mark.thread.number().into(), mark.context.0.into(), mark.enter.into()])
    })
}

pub(super) const SEGMENTS: TableSpec = TableSpec {
    name: "segments",
    columns: &[
        ("device", Text),
        ("action", Text),
        ("time_ns", Number),
        ("address", Number),
        ("size", Number),
        ("is_estimated", Flag),
        ("stack", Number),
        ("scope", Number),
        ("thread", Number),
    ],
};

pub(super) fn segments(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        for record in &device.segment_records {
            out.row(&[
                (&name).into(),
                action(record.kind).into(),
                record.time_ns.into(),
                record.address.into(),
                record.size.into(),
                record.estimated.into(),
                kept(record.stack),
                record.context.0.into(),
                record.thread.number().into(),
            ])?;
        }
        for segment in &device.segments {
            let (address, size) = (segment.address.into(), segment.size.into());
            let none = TableCell::Null;
            out.row(&[
                (&name).into(),
                "live at the end".into(),
                none,
                address,
                size,
                segment.estimated.into(),
                none,
                none,
                none,
            ])?;
        }
    }
    Ok(())
}
