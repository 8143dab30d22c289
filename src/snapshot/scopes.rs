//! What the recording knows about scopes.

use super::ids::{ContextId, ThreadId};

/// A scope name below its parent: one node of the tree of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextNode {
    /// The enclosing context.
    pub parent: ContextId,
    /// The scope's own name.
    pub name: String,
}

/// Totals of one context path on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeStats {
    /// Which context.
    pub context: ContextId,
    /// How often it was entered while recording.
    pub calls: u64,
    /// Allocations made inside it, nested scopes included.
    pub allocations: u64,
    /// Bytes of those allocations.
    pub allocated_bytes: u64,
    /// "Memory of this block": the most bytes live at once among what was allocated inside it.
    pub own_peak: u64,
    /// "Total while in this block": the largest allocated total of the device while it was open,
    /// whoever allocated; without blocks below the threshold. `None` if it was never open while recording (its blocks came from a
    /// scope that was already open when the recording began).
    pub total_peak: Option<u64>,
}

/// A scope was entered or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The path that was entered or left.
    pub context: ContextId,
    /// On which thread.
    pub thread: ThreadId,
    /// Entered (true) or left.
    pub enter: bool,
}
