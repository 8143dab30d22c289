//! Nodes of a graph in the order of its backward pass, as the program handed them over (`memtrace::candle::backward`).

use std::num::NonZeroU64;

use super::ids::ThreadId;

/// A node of the graph that a backward pass goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// When the order was handed over, right before the pass; the same for all nodes of a pass. Nanoseconds since the
    /// recording began.
    pub time_ns: u64,
    /// The thread that runs the pass.
    pub thread: ThreadId,
    /// Its place in the pass, from 0.
    pub place: u32,
    /// What it is.
    pub kind: GraphNodeKind,
    /// Bytes of its value, and so of its gradient.
    pub bytes: u64,
    /// The number of the block that holds its value; `None` if that is not recorded.
    pub block: Option<NonZeroU64>,
}

/// What a [`GraphNode`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphNodeKind {
    /// The result of an operator call, in a block of its own.
    Result,
    /// A view of another node's block.
    View,
    /// A variable, where the pass ends.
    Variable,
    /// No node: the pass is over.
    End,
}

impl GraphNodeKind {
    pub(crate) const ALL: [Self; 4] = [Self::Result, Self::View, Self::Variable, Self::End];
}
