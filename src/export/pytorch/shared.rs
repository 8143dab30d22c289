//! Segments, blocks and entries, with what they share.

use std::collections::HashMap;
use std::io::Write;

use foldhash::fast::RandomState;

use super::{LONGEST_PATH, PlacedSegment, number, words};
use crate::export::budget::Selection;
use crate::export::pickle::{List, Memo, Pickle, Word};
use crate::snapshot::{
    Action, Block, ContextId, DeviceSnapshot, Frame, Mark, OutOfMemory, Record, RecordKind, SegmentRecord,
    SnapshotData, StackId,
};

/// The size that a block takes up in its segment: blocks of no size need a place of their own, too.
fn extent(block: &Block) -> u64 {
    block.size.max(1)
}

/// What happened beside the log.
#[derive(Clone, Copy, Debug)]
enum Event<'a> {
    Oom(&'a OutOfMemory),
    Segment(&'a SegmentRecord),
}

impl Event<'_> {
    /// Of the same time, segments come before records, and those before what was refused.
    fn is_before(self, record: &Record) -> bool {
        match self {
            Self::Oom(oom) => oom.time_ns < record.time_ns,
            Self::Segment(segment) => segment.time_ns <= record.time_ns,
        }
    }
}

/// In the order of time.
fn events(device: &DeviceSnapshot) -> impl Iterator<Item = Event<'_>> {
    let (mut segments, mut ooms) = (device.segment_records.iter().peekable(), device.ooms.iter().peekable());
    std::iter::from_fn(move || match (segments.peek(), ooms.peek()) {
        (Some(segment), Some(oom)) if oom.time_ns < segment.time_ns => ooms.next().map(Event::Oom),
        (None, Some(_)) => ooms.next().map(Event::Oom),
        _ => segments.next().map(Event::Segment),
    })
}

/// What is written once and named again: frames, stacks, contexts. (Never entries, blocks or
/// segments: the viewer writes into those.)
pub(super) struct Shared<'a> {
    data: &'a SnapshotData,
    selection: &'a Selection<'a>,
    names: HashMap<&'a str, Memo, RandomState>,
    frames: HashMap<(&'a str, &'a str, u32), Memo, RandomState>,
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

    pub(super) fn segment(&mut self, p: &mut Pickle<impl Write>, placed: &PlacedSegment) {
        let active: u64 = placed.blocks.iter().map(extent).sum();
        let requested: u64 = placed.blocks.iter().map(|block| block.size).sum();
        p.dict(|p| {
            number(p, words::DEVICE, placed.device);
            number(p, words::ADDRESS, placed.segment.address);
            number(p, words::TOTAL_SIZE, placed.segment.size);
            number(p, words::ALLOCATED_SIZE, active);
            number(p, words::ACTIVE_SIZE, active);
            number(p, words::REQUESTED_SIZE, requested);
            number(p, words::STREAM, 0);
            p.word(words::SEGMENT_TYPE);
            p.word(words::LARGE);
            p.word(words::SEGMENT_POOL_ID);
            p.pair(0, 0);
            p.word(words::IS_EXPANDABLE);
            p.bool(false);
            p.word(words::FRAMES);
            self.stack(p, StackId::NONE);
            p.word(words::BLOCKS);
            self.blocks(p, placed)
        })
    }

    /// Live blocks with the gaps between them, so that they tile the segment.
    fn blocks(&mut self, p: &mut Pickle<impl Write>, placed: &PlacedSegment) {
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
                number(p, words::ADDRESS, address);
                number(p, words::SIZE, size);
                number(p, words::REQUESTED_SIZE, block.map_or(0, |block| block.size));
                p.word(words::STATE);
                p.word(if block.is_some() { words::ACTIVE_ALLOCATED } else { words::INACTIVE });
                p.word(words::FRAMES);
                self.stack(p, block.map_or(StackId::NONE, |block| block.stack))
            })
        })
    }

    pub(super) fn trace(&mut self, p: &mut Pickle<impl Write>, device: Option<&DeviceSnapshot>) {
        let mut list = p.begin_list();
        if let Some(device) = device {
            self.entries(p, &mut list, device);
        }
        p.end_list(list);
    }

    /// The log with what else happened, in the order of time.
    fn entries(&mut self, p: &mut Pickle<impl Write>, list: &mut List, device: &DeviceSnapshot) {
        let (selection, names) = (self.selection, device.names_by_seq());
        let [made, freed] = [RecordKind::Alloc, RecordKind::Free].map(|kind| self.actions(kind));
        let mut events = events(device).peekable();
        for record in selection.records(device) {
            while let Some(event) = events.next_if(|event| event.is_before(record)) {
                p.next_item(list);
                self.event(p, event);
            }
            for action in if record.kind == RecordKind::Alloc { &made } else { &freed } {
                p.next_item(list);
                self.entry(p, *action, record, names.get(record.alloc_seq));
            }
            if p.has_failed() {
                return;
            }
        }
        for event in events {
            p.next_item(list);
            self.event(p, event);
        }
    }

    /// The entries that a record is.
    fn actions(&self, kind: RecordKind) -> Vec<Word> {
        let actions: &[Action] = match kind {
            RecordKind::Alloc => &[Action::Alloc],
            RecordKind::Free => &[Action::FreeRequested, Action::FreeCompleted],
        };
        let skipped = &self.data.settings.skip_actions;
        actions.iter().filter(|action| !skipped.contains(action)).map(|action| action_name(*action)).collect()
    }

    fn event(&mut self, p: &mut Pickle<impl Write>, event: Event<'_>) {
        match event {
            Event::Oom(oom) => self.oom(p, oom),
            Event::Segment(segment) => self.segment_entry(p, segment),
        }
    }

    /// As PyTorch's: what was free stands where other entries have their address.
    fn oom(&mut self, p: &mut Pickle<impl Write>, oom: &OutOfMemory) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(words::OOM);
            number(p, words::DEVICE_FREE, oom.device_free.unwrap_or(0));
            number(p, words::SIZE, oom.size);
            number(p, words::STREAM, 0);
            number(p, words::TIME_US, self.epoch_us(oom.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, oom.context, None);
            p.word(words::FRAMES);
            self.stack(p, oom.stack)
        })
    }

    fn entry(&mut self, p: &mut Pickle<impl Write>, action: Word, record: &Record, name: Option<&str>) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(action);
            number(p, words::ADDR, record.address);
            number(p, words::SIZE, record.size);
            number(p, words::STREAM, u64::from(record.stream));
            number(p, words::TIME_US, self.epoch_us(record.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, record.context, name);
            p.word(words::FRAMES);
            self.stack(p, record.stack)
        })
    }

    fn segment_entry(&mut self, p: &mut Pickle<impl Write>, segment: &SegmentRecord) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(if segment.kind == RecordKind::Alloc { words::SEGMENT_ALLOC } else { words::SEGMENT_FREE });
            number(p, words::ADDR, segment.address);
            number(p, words::SIZE, segment.size);
            number(p, words::STREAM, 0);
            number(p, words::TIME_US, self.epoch_us(segment.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, segment.context, None);
            p.word(words::FRAMES);
            self.stack(p, segment.stack)
        })
    }

    pub(super) fn annotation(&mut self, p: &mut Pickle<impl Write>, device: u64, mark: &Mark) {
        p.dict(|p| {
            p.word(words::STAGE);
            p.word(if mark.enter { words::START } else { words::END });
            p.word(words::NAME);
            self.context(p, mark.context);
            number(p, words::DEVICE, device);
            number(p, words::TIME_US, self.epoch_us(mark.time_ns))
        })
    }

    /// The path of scopes, and the block's name if it has one: `train > load: weights`.
    fn metadata(&mut self, p: &mut Pickle<impl Write>, context: ContextId, name: Option<&str>) {
        let Some(name) = name else { return self.context(p, context) };
        let path = self.data.context_path(context);
        // Beside a name the path stands in every entry, not once in the file.
        if path.is_empty() || path.len() > LONGEST_PATH { p.text(name) } else { p.text(&format!("{path}: {name}")) }
    }

    fn context(&mut self, p: &mut Pickle<impl Write>, context: ContextId) {
        let number = context.0 as usize;
        if let Some(&Some(memo)) = self.contexts.get(number) {
            return p.get(memo);
        }
        p.text(&self.data.context_path(context));
        let memo = p.remember();
        self.contexts.get_mut(number).into_iter().for_each(|known| *known = Some(memo));
    }

    fn stack(&mut self, p: &mut Pickle<impl Write>, stack: StackId) {
        let number = stack.0 as usize;
        if let Some(&Some(memo)) = self.stacks.get(number) {
            return p.get(memo);
        }
        let data = self.data;
        p.list(data.stacks.frames(stack), |p, frame| self.frame(p, frame));
        let memo = p.remember();
        self.stacks.get_mut(number).into_iter().for_each(|known| *known = Some(memo));
    }

    fn frame(&mut self, p: &mut Pickle<impl Write>, frame: &'a Frame) {
        let key = (frame.function.as_str(), frame.file.as_str(), frame.line);
        if let Some(&memo) = self.frames.get(&key) {
            return p.get(memo);
        }
        p.dict(|p| {
            p.word(words::NAME);
            self.name(p, &frame.function);
            p.word(words::FILENAME);
            self.name(p, if frame.file.is_empty() { "??" } else { &frame.file });
            number(p, words::LINE, u64::from(frame.line))
        });
        let memo = p.remember();
        self.frames.insert(key, memo);
    }

    fn name(&mut self, p: &mut Pickle<impl Write>, name: &'a str) {
        if let Some(&memo) = self.names.get(name) {
            return p.get(memo);
        }
        // The viewers' flamegraphs split at semicolons, which Rust's array types contain.
        p.text(&name.replace(';', ","));
        let memo = p.remember();
        self.names.insert(name, memo);
    }

    fn epoch_us(&self, time_ns: u64) -> u64 {
        self.data.process.started_unix_us + time_ns / 1000
    }
}

fn action_name(action: Action) -> Word {
    match action {
        Action::Alloc => words::ALLOC,
        Action::FreeRequested => words::FREE_REQUESTED,
        Action::FreeCompleted => words::FREE_COMPLETED,
    }
}
