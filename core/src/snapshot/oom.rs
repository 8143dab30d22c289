//! Out-of-memory events: refused allocations.

use super::ids::{ContextId, StackId, ThreadId};

/// A device allocation that was refused for lack of memory: PyTorch's event `oom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// When the allocation was refused, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Requested bytes.
    pub size: u64,
    /// Free bytes of the device right after the refusal, as all processes see them (`cuMemGetInfo`); `None` if the
    /// query failed.
    #[serde(rename = "device_free_bytes")]
    pub device_free: Option<u64>,
    /// Total bytes of the device; `None` if the query failed.
    #[serde(rename = "device_total_bytes")]
    pub device_total: Option<u64>,
    /// The stack that requested it, if stacks are kept.
    #[serde(skip)]
    pub stack: StackId,
    /// The context in which it was requested.
    #[serde(skip)]
    pub context: ContextId,
    /// The thread that requested it.
    #[serde(skip)]
    pub thread: ThreadId,
}
