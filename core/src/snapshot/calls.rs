//! Latency of the driver's allocation and free calls.

use super::ids::{ContextId, StackId};

/// Time in driver calls for the blocks of one stack and context. CUDA devices only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// The stack that allocated the blocks, if stacks are kept.
    pub stack: StackId,
    /// The context in which they were allocated.
    pub context: ContextId,
    /// Number of calls that allocated.
    pub allocs: u64,
    /// Nanoseconds in the calls that allocated.
    pub alloc_ns: u64,
    /// The part of `alloc_ns` in calls for which the pool reserved more memory from the device.
    pub growing_ns: u64,
    /// Number of calls for which the pool reserved more memory.
    pub growing: u64,
    /// Number of calls that freed one of these blocks, whatever stack made the call.
    pub frees: u64,
    /// Nanoseconds in the calls that freed.
    pub free_ns: u64,
}
