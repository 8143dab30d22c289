//! What lay where in memory: one row for each step, with the blocks that were live at the step's
//! highest moment.
//!
//! Named and keyed as ExecuTorch's `generate_memory_trace` writes it: a process is a memory space, a
//! thread a step in time, and the horizontal axis is bytes, not time: 1 µs is one byte.

use std::io::{self, BufWriter, Write};

use super::devices;
use super::event::{Trace, Track, Value};
use super::names::Names;
pub use super::steps::Steps;
use super::steps::{Plan, Step, plan};
use crate::error::Error;
use crate::export::budget::{self, LeftOut};
use crate::snapshot::{Block, Device, DeviceSnapshot, Record, RecordKind, Replay, SnapshotData};
use crate::units::Bytes;

/// What to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// What begins a new step.
    pub steps: Steps,
    /// Scopes nested deeper than this begin no step; the outermost scopes have depth 1.
    pub max_depth: Option<usize>,
    /// At most so many steps of a device; see [`write()`] for what becomes of others.
    pub max_steps: usize,
    /// Each block at its place in memory, the device's segments end to end in the order of their
    /// addresses. Otherwise each row is packed from 0, in the order of allocation.
    pub offsets: bool,
    /// The size to keep to: beyond it the smallest blocks are left out of all rows but that of the peak.
    /// 256 MiB unless you say otherwise.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        let (device, steps, max_depth) = (None, Steps::default(), None);
        Self { device, steps, max_depth, max_steps: 2000, offsets: true, max_bytes: Some(256 << 20) }
    }
}

/// Writes a memory layout.
///
/// The row of the step with the peak holds exactly the peak's blocks; it comes first if the log no
/// longer has its records. A row's bytes and what its label says of blocks that were not recorded are
/// the step's own peak. With more than `max_steps` steps the deepest scopes begin no step, level by
/// level, then neighbouring steps are joined; `otherData` says so.
///
/// # Errors
/// If `out` fails.
pub fn write(data: &SnapshotData, options: &Options, mut out: impl Write) -> Result<LeftOut, Error> {
    let names = Names::new(data);
    let sizes = sizes(data);
    let up_to = |step: usize| step.checked_sub(1).and_then(|at| sizes.get(at)).copied();
    let left_out = |step| LeftOut { blocks_up_to: up_to(step), ..LeftOut::default() };
    budget::stepwise(options.max_bytes, sizes.len(), left_out, &mut out, |step, left_out, out| {
        write_blocks(data, options, &names, up_to(step).unwrap_or(0), left_out, out)
    })
}

/// The sizes of all blocks, each once, the smallest first.
fn sizes(data: &SnapshotData) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        data.devices.iter().flat_map(|device| &device.records).map(|record| record.size).collect();
    sizes.extend(data.devices.iter().flat_map(|device| &device.live).map(|block| block.size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn write_blocks(
    data: &SnapshotData,
    options: &Options,
    names: &Names,
    hidden: u64,
    left_out: &LeftOut,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let trace = Trace::begin(BufWriter::new(out))?;
    let mut layout = Layout { data, options, names, hidden, left_out, trace };
    let mut plans = Vec::new();
    for device in devices(data, options.device) {
        let plan = plan(data, device, options.steps, options.max_depth, options.max_steps);
        layout.device(device, &plan)?;
        plans.push((device.device, plan));
    }
    Ok(layout.finish(&plans)?)
}

struct Layout<'a, W> {
    data: &'a SnapshotData,
    options: &'a Options,
    names: &'a Names,
    /// Blocks of at most this size are shown in the row of the peak only.
    hidden: u64,
    left_out: &'a LeftOut,
    trace: Trace<W>,
}

impl<W: Write> Layout<'_, W> {
    fn device(&mut self, device: &DeviceSnapshot, plan: &Plan) -> io::Result<()> {
        let space = Track { pid: memory_space(device.device), tid: None };
        self.trace.metadata("process_name", space, Value::Name(&format!("{} memory", device.device)))?;
        self.trace.metadata("process_labels", space, Value::Labels("1 us is 1 byte"))?;
        self.trace.metadata("process_sort_index", space, Value::SortIndex(space.pid.into()))?;
        let places = Places::of(device);
        let peak = peak_position(device);
        if peak.is_none() {
            let label = format!("the peak, which the log no longer has: {}", Bytes(device.peak.bytes));
            let blocks = device.peak.blocks.clone();
            self.row(device, 0, &label, device.peak.not_recorded, blocks, &places)?;
        }
        if device.records.is_empty() && device.overwritten == 0 && peak.is_none() {
            // No history at all: the peak is all there is.
            return Ok(());
        }
        self.steps(device, plan, peak, &places)
    }

    /// The rows of all steps while the log is replayed once.
    fn steps(&mut self, device: &DeviceSnapshot, plan: &Plan, peak: Option<usize>, places: &Places) -> io::Result<()> {
        let (mut state, mut applied) = (Replay::at_log_start(device), 0);
        for (number, step) in (1u64..).zip(&plan.steps) {
            let records = device.records.get(applied..step.highest).unwrap_or(&[]);
            records.iter().for_each(|record| state.apply(record));
            applied = step.highest;
            let holds_peak = peak.is_some_and(|peak| peak == step.highest);
            let label = self.label(number, step, holds_peak);
            let mut blocks = state.blocks();
            blocks.retain(|block| holds_peak || block.size > self.hidden || self.hidden == 0);
            self.row(device, number, &label, step.allocated.saturating_sub(state.bytes()), blocks, places)?;
        }
        Ok(())
    }

    /// `12 iteration 1 > forward: 911.3 MiB`.
    fn label(&self, number: u64, step: &Step, holds_peak: bool) -> String {
        let path = self.names.path(step.context);
        let path = match (&step.call, self.options.steps) {
            (Some(call), _) => &format!("{call}{}{path}", if path.is_empty() { "" } else { " in " }),
            (None, Steps::Operators) => "(no operator)",
            (None, Steps::Scopes) if path.is_empty() => "(no scope)",
            (None, _) => path,
        };
        let peak = if holds_peak { " (peak)" } else { "" };
        format!("{number} {path}{}: {}{peak}", if path.is_empty() { "records" } else { "" }, Bytes(step.allocated))
    }

    fn row(
        &mut self,
        device: &DeviceSnapshot,
        number: u64,
        label: &str,
        not_recorded: u64,
        mut blocks: Vec<Block>,
        places: &Places,
    ) -> io::Result<()> {
        // Threads numbered 0 are no threads to the viewers.
        let row = Track { pid: memory_space(device.device), tid: Some(number + 1) };
        let outside = format!("{label} (with {} that were not recorded)", Bytes(not_recorded));
        self.trace.metadata("thread_name", row, Value::Name(if not_recorded > 0 { &outside } else { label }))?;
        self.trace.metadata("thread_sort_index", row, Value::SortIndex(number))?;
        if self.options.offsets {
            blocks.sort_unstable_by_key(|block| (block.address, block.seq));
        }
        let mut packed = 0;
        for block in &blocks {
            let name = device.name(block.seq);
            self.block(row, block, name, if self.options.offsets { places.offset(block) } else { packed })?;
            packed += block.size;
        }
        Ok(())
    }

    fn block(&mut self, row: Track, block: &Block, name: Option<&str>, offset: u64) -> io::Result<()> {
        let names = self.names;
        let line = Some(names.line(block.stack)).filter(|line| !line.is_empty()).unwrap_or("(no stack)");
        self.trace.event('X', |event| {
            event.text("cat", "memory_allocation")?;
            event.text("name", line)?;
            event.track(row)?;
            event.number("ts", offset)?;
            event.number("dur", block.size)?;
            event.object("args", |args| {
                args.text("op_name", names.operator(block.stack))?;
                args.number("Memory ID", row.pid)?;
                // ExecuTorch's word for what a tensor is called; where it has no name, for where it comes from.
                args.text("fqn", name.unwrap_or(names.path(block.context)))?;
                if name.is_some() {
                    args.text("scope", names.path(block.context))?;
                }
                args.text("source", line)?;
                args.number("bytes", block.size)
            })
        })
    }

    fn finish(self, plans: &[(Device, Plan)]) -> io::Result<()> {
        let Self { data, options, left_out, trace, .. } = self;
        trace.finish(|out| {
            out.text("displayTimeUnit", "ms")?;
            out.object("otherData", |out| {
                out.text("recorded_by", concat!("memtrace ", env!("CARGO_PKG_VERSION")))?;
                out.text("program", &data.process.program)?;
                out.text("horizontal_axis", "bytes: 1 us is 1 byte")?;
                out.number("offsets", options.offsets)?;
                if !left_out.is_nothing() {
                    out.text("left_out", &left_out.to_string())?;
                }
                plans.iter().try_for_each(|(device, plan)| {
                    out.object(device, |out| {
                        out.number("steps", plan.steps.len())?;
                        plan.depth.map_or(Ok(()), |depth| out.number("scopes_to_depth", depth))?;
                        out.number("steps_joined", plan.joined)
                    })
                })
            })
        })
    }
}

/// The memory space of a device, from 1.
fn memory_space(device: Device) -> u32 {
    match device {
        Device::Cpu => 1,
        Device::Cuda(ordinal) => ordinal.saturating_add(2),
        // Behind all ordinals.
        Device::Pinned => 10_001,
        Device::Managed => 10_002,
        Device::Imported => 10_003,
    }
}

/// How many of the log's records had been applied at the peak, if the log still has that moment.
fn peak_position(device: &DeviceSnapshot) -> Option<usize> {
    if device.peak.seq == 0 || device.peak.time_ns == 0 {
        return (device.overwritten == 0 && !device.records.is_empty()).then_some(0);
    }
    let made_peak = |record: &Record| record.kind == RecordKind::Alloc && record.alloc_seq == device.peak.seq;
    device.records.iter().position(made_peak).map(|at| at + 1)
}

/// Where addresses lie when the memory that was used is laid end to end.
struct Places {
    /// Start, end, and offset of the start.
    ranges: Vec<(u64, u64, u64)>,
}

impl Places {
    /// The device's segments, and whatever of the peak lies outside them: its records may be overwritten.
    fn of(device: &DeviceSnapshot) -> Self {
        let segments = device.segments.iter().map(|segment| (segment.address, segment.size));
        let blocks = device.peak.blocks.iter().map(|block| (block.address, block.size));
        let mut known: Vec<(u64, u64)> =
            segments.chain(blocks).map(|(start, size)| (start, start.saturating_add(size))).collect();
        known.sort_unstable();
        let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
        for (start, end) in known {
            match ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                Some(&mut (from, to, offset)) => ranges.push((start, end, offset + (to - from))),
                None => ranges.push((start, end, 0)),
            }
        }
        Self { ranges }
    }

    fn offset(&self, block: &Block) -> u64 {
        let after = self.ranges.partition_point(|(start, ..)| *start <= block.address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.map_or(block.address, |(start, _, offset)| offset + (block.address - start))
    }
}
