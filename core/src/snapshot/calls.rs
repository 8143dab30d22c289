//! What calls of the allocator cost.

use super::ids::{ContextId, StackId};

/// How long the driver took for the blocks of one place in the program. CUDA devices only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// Where the blocks were allocated, if stacks are kept.
    pub stack: StackId,
    /// In which scopes.
    pub context: ContextId,
    /// Calls that allocated one.
    pub allocs: u64,
    /// Nanoseconds that these took together.
    pub alloc_ns: u64,
    /// Of that, in calls for which the pool took memory from the device.
    pub growing_ns: u64,
    /// How many of these there were.
    pub growing: u64,
    /// Calls that freed one, wherever that was.
    pub frees: u64,
    /// Nanoseconds that these took together.
    pub free_ns: u64,
}
