//! Segments, blocks and entries, with what they share.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{LONGEST_PATH, PlacedSegment, number};
use crate::export::budget::Selection;
use crate::export::pickle::{Memo, Pickle};
use crate::snapshot::{
    Action, Block, ContextId, DeviceSnapshot, Frame, Mark, OutOfMemory, Record, RecordKind, SegmentRecord,
    SnapshotData, StackId,
};

/// The size that a block takes up in its segment: blocks of no size need a place of their own, too.
fn extent(block: &Block) -> u64 {
    block.size.max(1)
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

/// What is written once and named again: frames, stacks, contexts. (Never entries, blocks or
/// segments: the viewer writes into those.)
pub(super) struct Shared<'a> {
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
    pub(super) fn new(data: &'a SnapshotData, selection: &'a Selection<'a>) -> Self {
        let (names, frames) = Default::default();
        let (stacks, contexts) = (vec![None; data.stacks.len()], vec![None; data.contexts.len()]);
        Self { data, selection, names, frames, stacks, contexts }
    }

    pub(super) fn segment(&mut self, p: &mut Pickle<impl Write>, placed: &PlacedSegment) -> io::Result<()> {
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

    pub(super) fn trace(&mut self, p: &mut Pickle<impl Write>, device: Option<&DeviceSnapshot>) -> io::Result<()> {
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

    pub(super) fn annotation(&mut self, p: &mut Pickle<impl Write>, device: u64, mark: &Mark) -> io::Result<()> {
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

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
    }
}
