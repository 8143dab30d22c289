//! Blocks with their lifetimes, and what each counts for at the peak and at the end.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;

use memtrace_core::DeviceView;
use memtrace_core::snapshot::{Block, DeviceSnapshot, Weight};
use memtrace_core::units::round;

use crate::tables::ColumnKind::{Number, Rising, Text};
use crate::tables::{RunTables, TableCell, TableSpec, TableWriter};

pub(super) const BLOCKS: TableSpec = TableSpec {
    name: "blocks",
    columns: &[
        ("device", Text),
        ("block", Rising),
        ("address", Number),
        ("size", Number),
        ("bytes", Number),
        ("peak_bytes", Number),
        ("end_bytes", Number),
        ("allocated_ns", Rising),
        ("freed_ns", Rising),
        ("stack", Number),
        ("scope", Number),
        ("thread", Number),
        ("stream", Number),
        ("memory", Text),
        ("category", Text),
        ("name", Text),
    ],
};

pub(super) fn blocks(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.data.devices.iter().try_for_each(|device| {
        of_device(run, device, out)?;
        rest(run, device, out)
    })
}

fn of_device(run: &RunTables<'_>, device: &DeviceSnapshot, out: &mut dyn TableWriter) -> io::Result<()> {
    let (at_peak, at_end) = (by_number(device.peak_weights()), by_number(device.live_weights()));
    let view = DeviceView::of(run.data, device);
    let categories = view.categories();
    let name = device.device.to_string();
    for life in view.lifetimes().iter() {
        let (block, span) = (&life.block, view.span_ns(life));
        let bytes = |at: &HashMap<NonZeroU64, u64>| block.seq.and_then(|seq| at.get(&seq).copied()).into();
        let is_alloc_known = life.from > 0 || block.time_ns > 0;
        out.row(&[
            (&name).into(),
            block.seq.map(NonZeroU64::get).into(),
            block.address.into(),
            block.size.into(),
            device.weight(block.size).bytes.into(),
            bytes(&at_peak),
            bytes(&at_end),
            is_alloc_known.then_some(span.start).into(),
            life.free(device).map(|free| free.time_ns).into(),
            block.stack.0.into(),
            block.context.0.into(),
            is_alloc_known.then_some(block.thread.number()).into(),
            block.stream.into(),
            block.memory.word().into(),
            categories.label(block.seq).into(),
            device.name(block.seq).into(),
        ])?;
    }
    Ok(())
}

fn by_number<'a>(weights: impl Iterator<Item = (&'a Block, Weight)>) -> HashMap<NonZeroU64, u64> {
    weights.filter_map(|(block, weight)| Some((block.seq?, weight.bytes))).collect()
}

/// Bytes that no block counts for, as rows without a block: the sums are those of the report.
fn rest(run: &RunTables<'_>, device: &DeviceSnapshot, out: &mut dyn TableWriter) -> io::Result<()> {
    let below = format!("(blocks smaller than {})", round(run.data.settings.min_size));
    let rows = [
        ("(allocated before recording)", device.peak.not_recorded, device.not_recorded),
        (&*below, device.peak.below_threshold, device.below_threshold),
    ];
    let device = device.device.to_string();
    rows.iter().filter(|(_, at_peak, at_end)| at_peak + at_end > 0).try_for_each(|(name, at_peak, at_end)| {
        let mut row = [TableCell::Null; BLOCKS.columns.len()];
        (row[0], row[5], row[6]) = ((&device).into(), (*at_peak).into(), (*at_end).into());
        (row[14], row[15]) = ("unknown".into(), (*name).into());
        out.row(&row)
    })
}
