//! Rows of a snapshot's tables, and the indices that represent them among its values.

use crate::read::pickle::{PickleValue, Values};

/// The compact form of a dict or a list: an index into one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Frame(u32),
    Stack(u32),
    Block(u32),
    /// An earlier use of a block's memory, as torch 2.0 wrote it.
    Use(u32),
    Entry(u32),
    /// An entry that was added to its trace.
    Taken,
    Trace(u32),
}

/// The values of a snapshot.
pub(super) type SnapshotValues<'a> = Values<'a, Shape>;

/// A frame: indices of two strings, and a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FrameRow {
    pub(super) name: u32,
    pub(super) file: Option<u32>,
    pub(super) line: u32,
}

/// The state of a block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    Allocated,
    /// Freed, but still in use by another stream.
    Pending,
    Inactive,
}

/// A block of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRow {
    /// `None` in files of torch 2.0.
    pub(super) address: Option<u64>,
    pub(super) size: u64,
    /// The requested size.
    pub(super) requested: u64,
    pub(super) state: BlockState,
    /// A number in [`SnapshotTables::stacks`](super::shapes::SnapshotTables::stacks), from 1 on; 0 for none.
    pub(super) stack: u32,
}

/// The number of a stack; 0 for none.
pub(super) fn stack_number(frames: Option<PickleValue>, values: &SnapshotValues<'_>) -> u32 {
    match frames.and_then(|frames| values.kept(frames)) {
        Some(Shape::Stack(id)) => id,
        _ => 0,
    }
}
