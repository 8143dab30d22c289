//! Allocations that were refused.

use super::ids::{ContextId, StackId, ThreadId};

/// An allocation on a device that was refused for lack of memory: PyTorch's event `oom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes of the device that nobody had, other processes included, right after; `None` if the driver
    /// could not be asked (`cuMemGetInfo`).
    pub device_free: Option<u64>,
    /// Bytes of the device, as far as the driver could be asked.
    pub device_total: Option<u64>,
    /// Where it was asked for, if stacks are kept.
    pub stack: StackId,
    /// In which scopes.
    pub context: ContextId,
    /// By which thread.
    pub thread: ThreadId,
}
