//! Out-of-memory events: refused allocations.

use super::ids::{ContextId, StackId, ThreadId};

/// A device allocation that was refused for lack of memory: PyTorch's event `oom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// Requested bytes.
    pub size: u64,
    /// Free bytes of the device right afterwards, as all processes see them (`cuMemGetInfo`); `None` if the query failed.
    pub device_free: Option<u64>,
    /// Total bytes of the device; `None` if the query failed.
    pub device_total: Option<u64>,
    /// The stack that requested it, if stacks are kept.
    pub stack: StackId,
    /// The context in which it was requested.
    pub context: ContextId,
    /// The thread that requested it.
    pub thread: ThreadId,
}
