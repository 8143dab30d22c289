//! Rows of a snapshot's tables, and the indices that stand for them among its values.

use crate::read::pickle::{PickleValue, Values};

/// What a dict or a list is kept as: an index into one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Frame(u32),
    Stack(u32),
    Block(u32),
    /// An earlier use of a block's memory, as torch 2.0 wrote it.
    Use(u32),
    Entry(u32),
    /// An entry that was taken into its trace.
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

/// What a block of a segment is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    Allocated,
    /// Freed, and still used by another stream.
    Pending,
    Inactive,
}

/// A block of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRow {
    /// Torch 2.0 wrote none.
    pub(super) address: Option<u64>,
    pub(super) size: u64,
    /// What was asked for.
    pub(super) requested: u64,
    pub(super) state: BlockState,
    /// A number in [`SnapshotTables::stacks`](super::shapes::SnapshotTables::stacks) from 1 on; 0 for none.
    pub(super) stack: u32,
}

/// The number of a stack; 0 for none.
pub(super) fn stack_number(frames: Option<PickleValue>, values: &SnapshotValues<'_>) -> u32 {
    match frames.and_then(|frames| values.kept(frames)) {
        Some(Shape::Stack(id)) => id,
        _ => 0,
    }
}
