//! Memory layout: one row for each step (a phase of the recording), with the blocks that were live at the step's
//! highest moment.
//!
//! Names and keys are those of ExecuTorch's `generate_memory_trace`: a process is a memory space, a thread is a step in
//! time, and the horizontal axis is bytes instead of time (1 µs is one byte).

use std::io::{self, Write};

use super::devices;
use super::event::{Trace, Track};
use super::names::{self, Names};
use super::steps::{Plan, Step, Steps, peak_position, plan};
use crate::attribute::Attribution;
use crate::error::Error;
use crate::export::{Export, LeftOut, budget};
use crate::report::sampled;
use crate::snapshot::segments::merged;
use crate::snapshot::{Block, Device, DeviceSnapshot, Replay, SnapshotData};
use crate::units::Bytes;

/// The layout of memory step by step, as in ExecuTorch's memory trace, for the same viewers as a
/// [`ChromeTrace`](super::ChromeTrace). Each step has a row with the blocks that were live at the step's highest
/// moment. The horizontal axis is bytes: the device's segments end to end, in the order of their addresses.
///
/// The row of the step with the peak has exactly the peak's blocks. If the log no longer has the peak's records, this
/// row comes first. A row's blocks and the unrecorded bytes in its label add up to the step's own peak. Blocks have
/// their real sizes; in a sample the labels' figures are estimates. If there are more than `max_steps` steps, the
/// deepest scopes begin no step, level by level; then neighbouring steps are joined. The trace's `otherData` says so.
#[derive(Clone, Debug)]
pub struct MemoryLayout {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// The events that begin a new step.
    pub steps: Steps,
    /// The most steps of a device.
    pub max_steps: usize,
    /// The size limit: beyond it the smallest blocks are left out of all rows except the peak's. 128 MiB by default.
    pub max_bytes: Option<u64>,
}

impl Default for MemoryLayout {
    fn default() -> Self {
        let max_bytes = Some(super::MAX_BYTES);
        Self { device: None, steps: Steps::default(), max_steps: 2000, max_bytes }
    }
}

impl Export for MemoryLayout {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let attribution = Attribution::new(data);
        let names = BlockNames { names: Names::new(&attribution), operators: names::operators(&attribution) };
        let sizes = sizes(data);
        let up_to = |step: usize| step.checked_sub(1).and_then(|at| sizes.get(at)).copied();
        let left_out = |step| LeftOut { blocks_up_to: up_to(step), ..LeftOut::default() };
        let write = |_, left_out: &LeftOut, out: &mut dyn Write| write_blocks(data, self, &names, left_out, out);
        budget::stepwise(self.max_bytes, || sizes.len(), left_out, out, write)
    }
}

/// The distinct sizes of all blocks, the smallest first.
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
    options: &MemoryLayout,
    names: &BlockNames,
    left_out: &LeftOut,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut layout = Layout { data, options, names, left_out, trace: Trace::begin(out) };
    let mut plans = Vec::new();
    for device in devices(data, options.device) {
        let plan = plan(data, device, options.steps, options.max_steps);
        layout.device(device, &plan)?;
        plans.push((device.device, plan));
    }
    Ok(layout.finish(&plans)?)
}

struct BlockNames {
    names: Names,
    /// For each stack, its operator as JSON.
    operators: Vec<String>,
}

struct Layout<'a, 'o> {
    data: &'a SnapshotData,
    options: &'a MemoryLayout,
    names: &'a BlockNames,
    left_out: &'a LeftOut,
    trace: Trace<'o>,
}

impl Layout<'_, '_> {
    fn device(&mut self, device: &DeviceSnapshot, plan: &Plan) -> io::Result<()> {
        let number = memory_space(device.device);
        let space = Track::process(number);
        let labels = if device.is_sample() { "1 us is 1 byte, a sample of the blocks" } else { "1 us is 1 byte" };
        self.trace.process(&space, &format!("{} memory", device.device), labels, number.into())?;
        let ranges = ranges(device);
        let peak = peak_position(device);
        if peak.is_none() {
            let label = format!("the peak, which the log no longer has: {}", Bytes(device.peak.bytes));
            let blocks = device.peak.blocks.clone();
            self.row(device, 0, &label, device.peak.not_recorded, blocks, &ranges)?;
        }
        if device.records.is_empty() && device.overwritten == 0 && peak.is_none() {
            // A recording without history has only its peak.
            return Ok(());
        }
        self.steps(device, plan, peak, &ranges)
    }

    /// Writes the rows of all steps in one replay of the log.
    fn steps(
        &mut self,
        device: &DeviceSnapshot,
        plan: &Plan,
        peak: Option<usize>,
        ranges: &[(u64, u64)],
    ) -> io::Result<()> {
        let (mut state, mut applied) = (Replay::at_log_start(device), 0);
        for (number, step) in (1u64..).zip(&plan.steps) {
            let records = device.records.get(applied..step.highest).unwrap_or(&[]);
            records.iter().for_each(|record| state.apply(record));
            applied = step.highest;
            let holds_peak = peak.is_some_and(|peak| peak == step.highest);
            let label = self.label(device, number, step, holds_peak);
            let mut blocks = state.blocks();
            blocks.retain(|block| holds_peak || self.left_out.blocks_up_to.is_none_or(|size| block.size > size));
            let peak = Some(device.peak.not_recorded).filter(|_| holds_peak);
            let not_recorded = peak.unwrap_or_else(|| step.allocated.saturating_sub(state.bytes()));
            self.row(device, number, &label, not_recorded, blocks, ranges)?;
        }
        Ok(())
    }

    /// `12 iteration 1 > forward: 911.3 MiB`.
    fn label(&self, device: &DeviceSnapshot, number: u64, step: &Step, holds_peak: bool) -> String {
        // The peak is counted, not estimated.
        let about = sampled::about(device.sample_interval().filter(|_| !holds_peak));
        let path = self.names.names.path(step.context).text.as_str();
        let path = match (&step.call, self.options.steps) {
            (Some(call), _) => &format!("{call}{}{path}", if path.is_empty() { "" } else { " in " }),
            (None, Steps::Operators) => "(no operator)",
            (None, Steps::Scopes) if path.is_empty() => "(no scope)",
            (None, Steps::Scopes) => path,
        };
        let peak = if holds_peak { " (peak)" } else { "" };
        format!("{number} {path}: {about}{}{peak}", Bytes(step.allocated))
    }

    fn row(
        &mut self,
        device: &DeviceSnapshot,
        number: u64,
        label: &str,
        not_recorded: u64,
        mut blocks: Vec<Block>,
        ranges: &[(u64, u64)],
    ) -> io::Result<()> {
        // Viewers ignore thread 0.
        let space = memory_space(device.device);
        let row = Track::thread(space, number + 1);
        let outside = format!("{label} (with {} that were not recorded)", Bytes(not_recorded));
        self.trace.thread(&row, if not_recorded > 0 { &outside } else { label }, number)?;
        blocks.sort_unstable_by_key(|block| (block.address, block.seq));
        let mut blocks = blocks.iter();
        blocks.try_for_each(|block| self.block((space, &row), block, device.name(block.seq), offset(ranges, block)))
    }

    fn block(&mut self, (space, row): (u32, &Track), block: &Block, name: Option<&str>, offset: u64) -> io::Result<()> {
        let BlockNames { names, operators } = self.names;
        let (line, path) = (names.line(block.stack), names.path(block.context));
        let line = if line.is_empty() { "\"(no stack)\"" } else { &line.json };
        let operator = operators.get(block.stack.0 as usize).map_or("\"\"", String::as_str);
        self.trace.event("X", |event| {
            event.json("cat", "\"memory_allocation\"");
            event.json("name", line);
            event.track(row);
            event.number("ts", offset);
            event.number("dur", block.size);
            event.object("args", |args| {
                args.json("op_name", operator);
                args.number("Memory ID", space.into());
                // `fqn` is ExecuTorch's key for a tensor's name. If the block has no name, the key has the path of its
                // scopes.
                match name {
                    Some(name) => {
                        args.text("fqn", name);
                        args.json("scope", &path.json);
                    }
                    None => args.json("fqn", &path.json),
                }
                args.json("source", line);
                args.number("bytes", block.size);
            });
        })
    }

    fn finish(self, plans: &[(Device, Plan)]) -> io::Result<()> {
        let Self { data, left_out, trace, .. } = self;
        trace.finish(|out| {
            out.text("displayTimeUnit", "ms");
            out.object("otherData", |out| {
                out.text("recorded_by", concat!("memtrace ", env!("CARGO_PKG_VERSION")));
                out.text("program", &data.process.program);
                out.text("horizontal_axis", "bytes: 1 us is 1 byte");
                out.json("offsets", "true");
                if !left_out.is_nothing() {
                    out.text("left_out", &left_out.to_string());
                }
                for (device, plan) in plans {
                    out.object(&device.to_string(), |out| {
                        out.number("steps", plan.steps.len() as u64);
                        if let Some(depth) = plan.depth {
                            out.number("scopes_to_depth", depth as u64);
                        }
                        out.number("steps_joined", plan.joined as u64);
                        if let Some(note) = sampled::blocks_note(data.settings.sampling(*device).interval()) {
                            out.text("blocks", &note);
                        }
                    });
                }
            });
        })
    }
}

/// The number of a device's memory space, from 1.
fn memory_space(device: Device) -> u32 {
    match device {
        Device::Cpu => 1,
        Device::Cuda(ordinal) => ordinal.saturating_add(2),
        // Larger than every ordinal of a GPU.
        Device::Pinned => 10_001,
        Device::Managed => 10_002,
        Device::Imported => 10_003,
    }
}

/// The start of each used range of memory, and its offset on the axis, where the ranges lie end to end. The ranges are
/// the device's segments, and the peak's blocks outside of segments, whose records may be overwritten.
fn ranges(device: &DeviceSnapshot) -> Vec<(u64, u64)> {
    let segments = device.segments.iter().map(|segment| (segment.address, segment.size));
    let blocks = device.peak.blocks.iter().map(|block| (block.address, block.size));
    let known = segments.chain(blocks).map(|(start, size)| (start, start.saturating_add(size))).collect();
    let place = |next: &mut u64, (start, end): (u64, u64)| {
        let offset = *next;
        *next += end - start;
        Some((start, offset))
    };
    merged(known, 0).into_iter().scan(0, place).collect()
}

fn offset(ranges: &[(u64, u64)], block: &Block) -> u64 {
    let after = ranges.partition_point(|(start, _)| *start <= block.address);
    let range = after.checked_sub(1).and_then(|at| ranges.get(at));
    range.map_or(block.address, |(start, offset)| offset + (block.address - start))
}
