//! Latency of the driver's allocation and free calls.

use super::ids::{ContextId, StackId};

/// Time in driver calls for the blocks of one allocation site and context. CUDA devices only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// The stack that allocated the blocks, if stacks are kept.
    pub stack: StackId,
    /// The context in which they were allocated.
    pub context: ContextId,
    /// Calls that allocated.
    pub allocs: u64,
    /// Nanoseconds in those calls.
    pub alloc_ns: u64,
    /// Nanoseconds in those of them in which the pool reserved more memory from the device.
    pub growing_ns: u64,
    /// Number of those.
    pub growing: u64,
    /// Calls that freed such a block, from anywhere.
    pub frees: u64,
    /// Nanoseconds in those calls.
    pub free_ns: u64,
}
