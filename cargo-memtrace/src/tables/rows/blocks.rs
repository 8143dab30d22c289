//! Blocks with their lifetimes, and the bytes that each counts for at the peak and at the end.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;

use memtrace_core::DeviceView;
use memtrace_core::snapshot::{Block, DeviceSnapshot, Lifetime, Weight};
use memtrace_core::units::round;

use crate::tables::{RunTables, TableCell, TableWriter};

table! { BLOCKS = "blocks", write_block(
    (device, name): (&DeviceSnapshot, &str), life: &Lifetime, allocated_ns: Option<u64>,
    [at_peak, at_end]: [Option<u64>; 2], category: &str
) {
    device: Text = name,
    block: Rising = life.block.seq.map(NonZeroU64::get),
    address: Number = life.block.address,
    size: Number = life.block.size,
    bytes: Number = device.weight(life.block.size).bytes,
    peak_bytes: Number = at_peak,
    end_bytes: Number = at_end,
    allocated_ns: Rising = allocated_ns,
    freed_ns: Rising = life.free(device).map(|free| free.time_ns),
    stack: Number = life.block.stack.0,
    scope: Number = life.block.context.0,
    thread: Number = allocated_ns.map(|_| life.block.thread.number()),
    stream: Number = life.block.stream,
    memory: Text = life.block.memory.word(),
    category: Text = category,
    name: Text = device.name(life.block.seq),
} }

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
        let block = &life.block;
        let bytes = [&at_peak, &at_end].map(|at| block.seq.and_then(|seq| at.get(&seq).copied()));
        let allocated_ns = (life.from > 0 || block.time_ns > 0).then_some(view.span_ns(life).start);
        write_block(out, (device, &name), life, allocated_ns, bytes, categories.label(block.seq))?;
    }
    Ok(())
}

fn by_number<'a>(weights: impl Iterator<Item = (&'a Block, Weight)>) -> HashMap<NonZeroU64, u64> {
    weights.filter_map(|(block, weight)| Some((block.seq?, weight.bytes))).collect()
}

/// Bytes that belong to no block, as rows without a block, so that the sums equal those of the report.
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
