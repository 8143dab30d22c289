//! Stack frame table of a trace: a prefix tree from the outermost frame inwards, which has each path once.

use super::event::Object;
use crate::analysis::frame_location;
use crate::export::gathered::quoted;
use crate::numbered::Numbered;
use crate::snapshot::{SnapshotData, StackId};

/// The frames of a snapshot, numbered. Frames with the same text have the same number.
pub(super) struct Frames {
    numbers: Vec<u32>,
    /// The text of each number, as JSON.
    locations: Vec<String>,
}

impl Frames {
    pub(super) fn of(data: &SnapshotData) -> Self {
        let mut texts = Numbered::<String>::default();
        let frames = data.stacks.frames.iter();
        let number = |frame| texts.number(frame_location(frame, &data.process.working_dir)) as u32;
        let numbers = frames.map(number).collect();
        let locations = texts.keys().map(|location| quoted(location)).collect();
        Self { numbers, locations }
    }

    fn number(&self, frame: usize) -> u32 {
        self.numbers.get(frame).copied().unwrap_or_default()
    }

    fn location(&self, number: u32) -> &str {
        self.locations.get(number as usize).map_or("\"\"", String::as_str)
    }
}

/// The frames of the stacks that events have used so far.
pub(super) struct StackFrames<'a> {
    data: &'a SnapshotData,
    frames: &'a Frames,
    /// Entry `n` describes frame `n + 1` of the trace: the number of its parent (0 is the root), and the
    /// number of its text in `frames`.
    table: Numbered<(u32, u32)>,
    /// For each stack, the number of its innermost frame.
    leaves: Vec<Option<u32>>,
}

impl<'a> StackFrames<'a> {
    pub(super) fn new(data: &'a SnapshotData, frames: &'a Frames) -> Self {
        let leaves = vec![None; data.stacks.len()];
        Self { data, frames, table: Numbered::default(), leaves }
    }

    /// The number of a stack's innermost frame; 0 if it has none.
    #[inline]
    pub(super) fn number(&mut self, stack: StackId) -> u32 {
        match self.leaves.get(stack.0 as usize) {
            Some(Some(number)) => *number,
            Some(None) => self.add(stack),
            None => 0,
        }
    }

    fn add(&mut self, stack: StackId) -> u32 {
        let (data, frames) = (self.data, self.frames);
        let calls = data.stacks.frame_numbers(stack).rev();
        let leaf = calls.fold(0, |parent, frame| self.below(parent, frames.number(frame)));
        if let Some(known) = self.leaves.get_mut(stack.0 as usize) {
            *known = Some(leaf);
        }
        leaf
    }

    pub(super) fn write(&self, out: &mut Object<'_, '_>) {
        out.object("stackFrames", |out| {
            for (number, (parent, frame)) in (1u32..).zip(self.table.keys()) {
                out.object(&number.to_string(), |out| {
                    out.json("name", self.frames.location(*frame));
                    if *parent > 0 {
                        out.number("parent", u64::from(*parent));
                    }
                });
            }
        });
    }

    fn below(&mut self, parent: u32, frame: u32) -> u32 {
        self.table.number((parent, frame)) as u32 + 1
    }
}
