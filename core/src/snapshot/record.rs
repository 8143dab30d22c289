//! Log records (alloc and free) and the blocks that they create and end.

use std::num::NonZeroU64;

use super::MemoryKind;
use super::ids::{ContextId, StackId, ThreadId};

/// Alloc or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Memory was allocated.
    Alloc,
    /// Memory was freed. A reallocation logs a free, then an alloc.
    Free,
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the recording began; never goes back within a device.
    pub time_ns: u64,
    /// Address of the block.
    pub address: u64,
    /// Requested size in bytes; the same in the alloc and in its free.
    pub size: u64,
    /// The stack of this alloc or free, if it was kept (frees: only with [`StackContext::All`]).
    ///
    /// [`StackContext::All`]: crate::StackContext::All
    pub stack: StackId,
    /// The stack that allocated the block; in an alloc equal to `stack`. [`StackId::NONE`] in the free of an unknown block.
    pub alloc_stack: StackId,
    /// The context in which the block was *allocated*.
    pub context: ContextId,
    /// The thread that allocated or freed it.
    pub thread: ThreadId,
    /// The alloc's position in the device's log, from 1; `None` for the free of a block whose alloc was not recorded.
    pub alloc_seq: Option<NonZeroU64>,
    /// CUDA stream, renumbered by exporters; 0 on the CPU.
    pub stream: u32,
    /// Alloc or free.
    pub kind: RecordKind,
    /// Which allocator or driver function provided the block.
    pub memory: MemoryKind,
}

impl Record {
    /// `alloc_seq` in the form of captures and of the recorder's log: 0 for `None`.
    #[doc(hidden)]
    #[inline]
    pub fn raw_seq(&self) -> u64 {
        self.alloc_seq.map_or(0, NonZeroU64::get)
    }

    /// The alloc record of a block; [`block`](Self::block) is the inverse.
    #[inline]
    pub fn alloc_of(block: &Block) -> Self {
        Self {
            time_ns: block.time_ns,
            address: block.address,
            size: block.size,
            stack: block.stack,
            alloc_stack: block.stack,
            context: block.context,
            thread: block.thread,
            alloc_seq: block.seq,
            stream: block.stream,
            kind: RecordKind::Alloc,
            memory: block.memory,
        }
    }

    /// The block that an alloc created or a free ended. A free does not have all of the block's data: the block made
    /// from a free has time 0 and the thread that freed it.
    #[inline]
    pub fn block(&self) -> Block {
        let time_ns = if self.kind == RecordKind::Alloc { self.time_ns } else { 0 };
        Block {
            address: self.address,
            size: self.size,
            seq: self.alloc_seq,
            time_ns,
            stack: self.alloc_stack,
            context: self.context,
            thread: self.thread,
            stream: self.stream,
            memory: self.memory,
        }
    }
}

/// A live block: memory that is allocated and not yet freed at the moment in question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Address of its first byte.
    pub address: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// Position of its alloc in the device's log, from 1; never reused. `None` only in a block that [`Record::block`]
    /// makes from the free of an unknown block.
    pub seq: Option<NonZeroU64>,
    /// Time of its alloc in nanoseconds since the recording began.
    pub time_ns: u64,
    /// The stack that allocated it.
    pub stack: StackId,
    /// The context in which it was allocated.
    pub context: ContextId,
    /// The thread that allocated it.
    pub thread: ThreadId,
    /// CUDA stream; 0 on the CPU.
    pub stream: u32,
    /// Which allocator or driver function provided it.
    pub memory: MemoryKind,
}

impl Block {
    /// `seq` in the form of captures and of the recorder's log: 0 for `None`.
    #[doc(hidden)]
    #[inline]
    pub fn raw_seq(&self) -> u64 {
        self.seq.map_or(0, NonZeroU64::get)
    }
}
