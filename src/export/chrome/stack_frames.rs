//! The format's table of stack frames: a tree from the outermost frame inwards, each path once.

use std::collections::HashMap;
use std::io::{self, Write};

use super::event::Object;
use crate::analysis::frame_location;
use crate::snapshot::{Frame, SnapshotData, StackId};

/// The frames of the stacks that were asked for so far.
pub(super) struct StackFrames<'a> {
    data: &'a SnapshotData,
    /// By parent (0 for none) and frame.
    numbers: HashMap<(u32, &'a Frame), u32>,
    /// Entry `n` is frame `n + 1`: its parent and itself.
    table: Vec<(u32, &'a Frame)>,
    leaves: HashMap<StackId, u32>,
}

impl<'a> StackFrames<'a> {
    pub(super) fn new(data: &'a SnapshotData) -> Self {
        Self { data, numbers: HashMap::new(), table: Vec::new(), leaves: HashMap::new() }
    }

    /// The number of a stack's innermost frame; 0 if it has none.
    pub(super) fn number(&mut self, stack: StackId) -> u32 {
        if let Some(&number) = self.leaves.get(&stack) {
            return number;
        }
        let data = self.data;
        let number = data.stacks.frames(stack).rev().fold(0, |parent, frame| self.below(parent, frame));
        self.leaves.insert(stack, number);
        number
    }

    pub(super) fn write(&self, out: &mut Object<'_, impl Write>) -> io::Result<()> {
        out.object("stackFrames", |out| {
            for (number, (parent, frame)) in (1u32..).zip(&self.table) {
                out.object(number, |out| {
                    out.text("name", &frame_location(frame, &self.data.process.working_dir))?;
                    if *parent == 0 { Ok(()) } else { out.number("parent", parent) }
                })?;
            }
            Ok(())
        })
    }

    fn below(&mut self, parent: u32, frame: &'a Frame) -> u32 {
        let next = self.table.len() as u32 + 1;
        let number = *self.numbers.entry((parent, frame)).or_insert(next);
        if number == next {
            self.table.push((parent, frame));
        }
        number
    }
}
