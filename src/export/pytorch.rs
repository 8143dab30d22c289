//! PyTorch memory snapshot: the pickle that `memory_viz` opens.
//!
//! The dictionaries and their keys are those of `torch.cuda.memory._snapshot()` (torch 2.15), so that
//! torch's own tools read it. What memtrace knows and PyTorch has no place for goes into
//! `allocator_settings`; the scopes in which a block was allocated and its name go into `user_metadata`.

use std::collections::HashMap;
use std::io::{self, Write};

use super::budget::{self, LeftOut, Selection};
use super::pickle::{Memo, Pickle};
use crate::error::Error;
use crate::snapshot::{
    Action, Block, ContextId, Device, DeviceSnapshot, Frame, LONGEST_NAME, Mark, OutOfMemory, Record, RecordKind,
    Segment, SegmentRecord, SnapshotData, StackId,
};

/// What to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// The size to keep to, if that is possible without losing the peak; 512 MiB unless you say
    /// otherwise: the viewers fail on files of a gigabyte.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, max_bytes: Some(512 << 20) }
    }
}

/// Longer paths of scopes do not stand beside a block's name.
const LONGEST_PATH: usize = 1024;
/// What one entry, block or mark takes at the most, without its names.
const LARGEST_ENTRY: u64 = 128;

/// Writes a snapshot pickle (protocol 4).
///
/// CUDA devices have their ordinals; the CPU device comes after them, as device 0 where there is
/// none. A free is written as `free_requested` and `free_completed`.
///
/// # Errors
/// If `out` fails.
pub fn write(data: &SnapshotData, options: &Options, mut out: impl Write) -> Result<LeftOut, Error> {
    let write = |selection: &Selection<'_>, out: &mut dyn Write| write_selection(data, options, selection, out);
    budget::records(data, options.max_bytes, at_most(data), &mut out, write)
}

/// An upper bound of a pickle's size.
fn at_most(data: &SnapshotData) -> u64 {
    let entries = |d: &DeviceSnapshot| {
        2 * d.records.len()
            + 3 * d.live.len()
            + 4 * d.segments.len()
            + d.marks.len()
            + d.ooms.len()
            + d.segment_records.len()
    };
    let entries: usize = data.devices.iter().map(entries).sum();
    let stacks: usize = data.stacks.each_calls().map(<[u32]>::len).sum();
    let named: usize =
        data.devices.iter().filter(|device| !device.names.is_empty()).map(|device| device.records.len()).sum();
    let names: usize = data.stacks.frames.iter().map(|frame| frame.function.len() + frame.file.len() + 64).sum();
    let paths: usize = data.contexts.iter().map(|node| 64 + node.name.len()).sum::<usize>() * 64;
    entries as u64 * LARGEST_ENTRY
        + (8 * stacks + names + paths + 2 * named * (LONGEST_PATH + LONGEST_NAME)) as u64
        + 4096
}

fn write_selection(
    data: &SnapshotData,
    options: &Options,
    selection: &Selection<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let devices = numbered(data, options);
    let mut pickle = Pickle::begin(out)?;
    let mut shared = Shared::new(data, selection);
    pickle.dict(|p| {
        p.word("segments")?;
        let segments = devices.iter().flat_map(|&(number, device)| placed(number, device));
        p.list(segments, |p, segment| shared.segment(p, &segment))?;
        p.word("device_traces")?;
        let lists = devices.iter().map(|&(number, _)| number + 1).max().unwrap_or(1);
        p.list(0..lists, |p, number| shared.trace(p, devices.iter().find(|(n, _)| *n == number).map(|(_, d)| *d)))?;
        p.word("allocator_settings")?;
        settings(p, data, &devices, &selection.left_out)?;
        p.word("external_annotations")?;
        let shown = |mark: &&Mark| selection.shows_mark(data, mark);
        let marks = |device: &'_ DeviceSnapshot| device.marks.iter().filter(shown).copied().collect::<Vec<Mark>>();
        let marks =
            devices.iter().flat_map(|&(number, device)| marks(device).into_iter().map(move |mark| (number, mark)));
        p.list(marks, |p, (number, mark)| shared.annotation(p, number, &mark))
    })?;
    pickle.finish()?;
    Ok(())
}

/// An entry of a trace.
#[derive(Clone, Copy, Debug)]
enum Entry<'a> {
    Of(&'static str, &'a Record),
    Oom(&'a OutOfMemory),
    Segment(&'a SegmentRecord),
}

impl Entry<'_> {
    fn time_ns(self) -> u64 {
        match self {
            Self::Of(_, record) => record.time_ns,
            Self::Oom(oom) => oom.time_ns,
            Self::Segment(segment) => segment.time_ns,
        }
    }
}

/// Both in the order of time, the `first` ones first where they are of the same.
fn merged<'a>(
    first: impl Iterator<Item = Entry<'a>>,
    second: impl Iterator<Item = Entry<'a>>,
) -> impl Iterator<Item = Entry<'a>> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(one), Some(other)) if other.time_ns() < one.time_ns() => second.next(),
        (None, Some(_)) => second.next(),
        _ => first.next(),
    })
}

/// The devices to write with the numbers that the viewers know them by.
fn numbered<'a>(data: &'a SnapshotData, options: &Options) -> Vec<(u64, &'a DeviceSnapshot)> {
    let wanted = |d: &&DeviceSnapshot| options.device.is_none_or(|only| only == d.device);
    let ordinal = |d: &DeviceSnapshot| match d.device {
        Device::Cuda(ordinal) => Some(u64::from(ordinal)),
        Device::Cpu | Device::Pinned | Device::Managed | Device::Imported => None,
    };
    let mut after_cuda = data.devices.iter().filter(wanted).filter_map(ordinal).max().map_or(0, |last| last + 1)..;
    let mut number = |d| ordinal(d).or_else(|| after_cuda.next()).unwrap_or(u64::MAX);
    data.devices.iter().filter(wanted).map(|d| (number(d), d)).collect()
}

/// A segment with the live blocks that lie in it, by address.
struct PlacedSegment {
    device: u64,
    segment: Segment,
    blocks: Vec<Block>,
}

fn placed(number: u64, device: &DeviceSnapshot) -> Vec<PlacedSegment> {
    let mut blocks = device.live.clone();
    blocks.sort_unstable_by_key(|block| block.address);
    let mut rest = blocks.as_slice();
    let within = |segment: &Segment| {
        let end = segment.address + segment.size;
        let (inside, after) = rest.split_at(rest.partition_point(|block| block.address < end));
        rest = after;
        PlacedSegment { device: number, segment: *segment, blocks: inside.to_vec() }
    };
    device.segments.iter().map(within).collect()
}

/// The size that a block takes up in its segment: blocks of no size need a place of their own, too.
fn extent(block: &Block) -> u64 {
    block.size.max(1)
}

/// What is written once and named again: frames, stacks, contexts. (Never entries, blocks or
/// segments: the viewer writes into those.)
struct Shared<'a> {
    data: &'a SnapshotData,
    selection: &'a Selection<'a>,
    names: HashMap<&'a str, Memo>,
    frames: HashMap<(&'a str, &'a str, u32), Memo>,
    /// By stack.
    stacks: Vec<Option<Memo>>,
    /// By context.
    contexts: Vec<Option<Memo>>,
}

impl<'a> Shared<'a> {
    fn new(data: &'a SnapshotData, selection: &'a Selection<'a>) -> Self {
        let (names, frames) = Default::default();
        let (stacks, contexts) = (vec![None; data.stacks.len()], vec![None; data.contexts.len()]);
        Self { data, selection, names, frames, stacks, contexts }
    }

    fn segment(&mut self, p: &mut Pickle<impl Write>, placed: &PlacedSegment) -> io::Result<()> {
        let active: u64 = placed.blocks.iter().map(extent).sum();
        let requested: u64 = placed.blocks.iter().map(|block| block.size).sum();
        p.dict(|p| {
            number(p, "device", placed.device)?;
            number(p, "address", placed.segment.address)?;
            number(p, "total_size", placed.segment.size)?;
            number(p, "allocated_size", active)?;
            number(p, "active_size", active)?;
            number(p, "requested_size", requested)?;
            number(p, "stream", 0)?;
            p.word("segment_type")?;
            p.word("large")?;
            p.word("segment_pool_id")?;
            p.pair(0, 0)?;
            p.word("is_expandable")?;
            p.bool(false)?;
            p.word("frames")?;
            self.stack(p, StackId::NONE)?;
            p.word("blocks")?;
            self.blocks(p, placed)
        })
    }

    /// Live blocks with the gaps between them, so that they tile the segment.
    fn blocks(&mut self, p: &mut Pickle<impl Write>, placed: &PlacedSegment) -> io::Result<()> {
        let mut tiles: Vec<(u64, u64, Option<&Block>)> = Vec::new();
        let mut at = placed.segment.address;
        for block in &placed.blocks {
            if block.address > at {
                tiles.push((at, block.address - at, None));
            }
            tiles.push((block.address, extent(block), Some(block)));
            at = block.address + extent(block);
        }
        let end = placed.segment.address + placed.segment.size;
        if end > at {
            tiles.push((at, end - at, None));
        }
        p.list(tiles, |p, (address, size, block)| {
            p.dict(|p| {
                number(p, "address", address)?;
                number(p, "size", size)?;
                number(p, "requested_size", block.map_or(0, |block| block.size))?;
                p.word("state")?;
                p.word(if block.is_some() { "active_allocated" } else { "inactive" })?;
                p.word("frames")?;
                self.stack(p, block.map_or(StackId::NONE, |block| block.stack))
            })
        })
    }

    fn trace(&mut self, p: &mut Pickle<impl Write>, device: Option<&DeviceSnapshot>) -> io::Result<()> {
        let (skipped, selection) = (&self.data.settings.skip_actions, self.selection);
        let entries = device.into_iter().flat_map(|device| selection.records(device)).flat_map(|record| {
            let actions: &[Action] = match record.kind {
                RecordKind::Alloc => &[Action::Alloc],
                RecordKind::Free => &[Action::FreeRequested, Action::FreeCompleted],
            };
            let shown = actions.iter().filter(|action| !skipped.contains(action));
            shown.map(move |action| Entry::Of(action_name(*action), record))
        });
        let ooms = device.into_iter().flat_map(|device| &device.ooms).map(Entry::Oom);
        let name = |record: &Record| device.and_then(|device| device.name(record.alloc_seq));
        let segments = device.into_iter().flat_map(|device| &device.segment_records).map(Entry::Segment);
        p.list(merged(segments, merged(entries, ooms)), |p, entry| match entry {
            Entry::Of(action, record) => self.entry(p, action, record, name(record)),
            Entry::Oom(oom) => self.oom(p, oom),
            Entry::Segment(segment) => self.segment_entry(p, segment),
        })
    }

    /// As PyTorch's: what was free stands where other entries have their address.
    fn oom(&mut self, p: &mut Pickle<impl Write>, oom: &OutOfMemory) -> io::Result<()> {
        p.dict(|p| {
            p.word("action")?;
            p.word("oom")?;
            number(p, "device_free", oom.device_free.unwrap_or(0))?;
            number(p, "size", oom.size)?;
            number(p, "stream", 0)?;
            number(p, "time_us", self.epoch_us(oom.time_ns))?;
            p.word("compile_context")?;
            p.word("N/A")?;
            p.word("user_metadata")?;
            self.metadata(p, oom.context, None)?;
            p.word("frames")?;
            self.stack(p, oom.stack)
        })
    }

    fn entry(
        &mut self,
        p: &mut Pickle<impl Write>,
        action: &'static str,
        record: &Record,
        name: Option<&str>,
    ) -> io::Result<()> {
        p.dict(|p| {
            p.word("action")?;
            p.word(action)?;
            number(p, "addr", record.address)?;
            number(p, "size", record.size)?;
            number(p, "stream", u64::from(record.stream))?;
            number(p, "time_us", self.epoch_us(record.time_ns))?;
            p.word("compile_context")?;
            p.word("N/A")?;
            p.word("user_metadata")?;
            self.metadata(p, record.context, name)?;
            p.word("frames")?;
            self.stack(p, record.stack)
        })
    }

    fn segment_entry(&mut self, p: &mut Pickle<impl Write>, segment: &SegmentRecord) -> io::Result<()> {
        p.dict(|p| {
            p.word("action")?;
            p.word(if segment.kind == RecordKind::Alloc { "segment_alloc" } else { "segment_free" })?;
            number(p, "addr", segment.address)?;
            number(p, "size", segment.size)?;
            number(p, "stream", 0)?;
            number(p, "time_us", self.epoch_us(segment.time_ns))?;
            p.word("compile_context")?;
            p.word("N/A")?;
            p.word("user_metadata")?;
            self.metadata(p, segment.context, None)?;
            p.word("frames")?;
            self.stack(p, segment.stack)
        })
    }

    fn annotation(&mut self, p: &mut Pickle<impl Write>, device: u64, mark: &Mark) -> io::Result<()> {
        p.dict(|p| {
            p.word("stage")?;
            p.word(if mark.enter { "START" } else { "END" })?;
            p.word("name")?;
            self.context(p, mark.context)?;
            number(p, "device", device)?;
            number(p, "time_us", self.epoch_us(mark.time_ns))
        })
    }

    /// The path of scopes, and the block's name if it has one: `train > load: weights`.
    fn metadata(&mut self, p: &mut Pickle<impl Write>, context: ContextId, name: Option<&str>) -> io::Result<()> {
        let Some(name) = name else { return self.context(p, context) };
        let path = self.data.context_path(context);
        // Beside a name the path stands in every entry, not once in the file.
        if path.is_empty() || path.len() > LONGEST_PATH { p.text(name) } else { p.text(&format!("{path}: {name}")) }
    }

    fn context(&mut self, p: &mut Pickle<impl Write>, context: ContextId) -> io::Result<()> {
        let number = context.0 as usize;
        if let Some(&Some(memo)) = self.contexts.get(number) {
            return p.get(memo);
        }
        p.text(&self.data.context_path(context))?;
        let memo = p.remember()?;
        self.contexts.get_mut(number).into_iter().for_each(|known| *known = Some(memo));
        Ok(())
    }

    fn stack(&mut self, p: &mut Pickle<impl Write>, stack: StackId) -> io::Result<()> {
        let number = stack.0 as usize;
        if let Some(&Some(memo)) = self.stacks.get(number) {
            return p.get(memo);
        }
        let data = self.data;
        p.list(data.stacks.frames(stack), |p, frame| self.frame(p, frame))?;
        let memo = p.remember()?;
        self.stacks.get_mut(number).into_iter().for_each(|known| *known = Some(memo));
        Ok(())
    }

    fn frame(&mut self, p: &mut Pickle<impl Write>, frame: &'a Frame) -> io::Result<()> {
        let key = (frame.function.as_str(), frame.file.as_str(), frame.line);
        if let Some(&memo) = self.frames.get(&key) {
            return p.get(memo);
        }
        p.dict(|p| {
            p.word("name")?;
            self.name(p, &frame.function)?;
            p.word("filename")?;
            self.name(p, if frame.file.is_empty() { "??" } else { &frame.file })?;
            number(p, "line", u64::from(frame.line))
        })?;
        let memo = p.remember()?;
        self.frames.insert(key, memo);
        Ok(())
    }

    fn name(&mut self, p: &mut Pickle<impl Write>, name: &'a str) -> io::Result<()> {
        if let Some(&memo) = self.names.get(name) {
            return p.get(memo);
        }
        // The viewers' flamegraphs split at semicolons, which Rust's array types contain.
        p.text(&name.replace(';', ","))?;
        let memo = p.remember()?;
        self.names.insert(name, memo);
        Ok(())
    }

    fn epoch_us(&self, time_ns: u64) -> u64 {
        self.data.process.started_unix_us + time_ns / 1000
    }
}

fn number(p: &mut Pickle<impl Write>, key: &'static str, value: u64) -> io::Result<()> {
    p.word(key)?;
    p.int(value)
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
    }
}

/// Shown by the viewer's "Allocator Settings".
fn settings(
    p: &mut Pickle<impl Write>,
    data: &SnapshotData,
    devices: &[(u64, &DeviceSnapshot)],
    left_out: &LeftOut,
) -> io::Result<()> {
    let overwritten = devices.iter().map(|(_, device)| device.overwritten).sum();
    let estimated = devices.iter().any(|(_, device)| device.segments.iter().any(|segment| segment.estimated));
    p.dict(|p| {
        text(p, "recorded_by", concat!("memtrace ", env!("CARGO_PKG_VERSION")))?;
        text(p, "program", &data.process.program)?;
        let names: Vec<String> =
            devices.iter().map(|(number, device)| format!("{number}: {}", device.device)).collect();
        text(p, "devices", &names.join(", "))?;
        number(p, "min_size", data.settings.min_size)?;
        number(p, "max_entries", data.settings.max_entries as u64)?;
        number(p, "records_overwritten", overwritten)?;
        if !left_out.is_nothing() {
            text(p, "left_out", &left_out.to_string())?;
        }
        p.word("segments_are_estimated_from_addresses")?;
        p.bool(estimated)
    })
}

fn text(p: &mut Pickle<impl Write>, key: &'static str, value: &str) -> io::Result<()> {
    p.word(key)?;
    p.text(value)
}
