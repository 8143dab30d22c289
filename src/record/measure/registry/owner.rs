//! Who owns a block.

use memtrace_core::snapshot::{Block, Device, StackId, ThreadId};

use crate::record::measure::id::Id;

/// Address space of a block. The spaces are separate, because pinned memory may share addresses with the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Heap,
    Pinned,
    Device,
}

impl Space {
    pub(crate) fn of(device: Device) -> Self {
        match device {
            Device::Cpu => Self::Heap,
            Device::Pinned => Self::Pinned,
            _ => Self::Device,
        }
    }
}

/// While a block's free may still fail, its positions in this many nested measurements are kept.
pub(super) const NESTED: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// 0 for a block that no measurement owns.
    pub(super) measure: Id,
    pub(super) device: Device,
    pub(super) size: u64,
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
    /// The block is of handed-over work.
    pub(super) handed: bool,
    /// If this block was allocated by a thread outside all measurements, or in a measurement around another one: the
    /// newest measurement at that time. The block may be for any measurement with an id up to this one that does not
    /// own the block. 0 for all other blocks.
    pub(super) of_other: Id,
}

/// A free as the measurements saw it. It is used to undo the free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredFree {
    pub(super) address: u64,
    pub(super) owner: Option<(Owner, Option<Block>)>,
    /// The block's positions in the measurements that it belonged to, innermost first.
    pub(super) numbers: [(Id, u64); NESTED],
    /// The open measurement of the work that freed the block; 0 for none. It and those around it that do not own the
    /// block count the free as foreign.
    pub(super) foreign: Id,
    pub(super) device: Device,
    pub(super) size: u64,
}
