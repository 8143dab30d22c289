//! Nodes of an autograd graph in the order of its backward pass, as the program reported them
//! (`memtrace::candle::backward`).

use std::num::NonZeroU64;

use super::ids::ThreadId;

/// A node of the graph that a backward pass visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// When the program reported the order, right before the pass. All nodes of a pass have the same time, in
    /// nanoseconds since the recording began.
    pub time_ns: u64,
    /// The thread that runs the pass.
    pub thread: ThreadId,
    /// Its place in the pass, from 0.
    pub place: u32,
    /// The kind of node.
    pub kind: GraphNodeKind,
    /// Bytes of its value. Its gradient has the same size.
    pub bytes: u64,
    /// The number of the block that holds its value; `None` if the block is not recorded.
    pub block: Option<NonZeroU64>,
}

/// The kind of a [`GraphNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphNodeKind {
    /// The result of an operator call, in a block of its own.
    Result,
    /// A view of another node's block.
    View,
    /// A variable, where the pass ends.
    Variable,
    /// Not a node: marks the end of the pass.
    End,
}

impl GraphNodeKind {
    pub(crate) const ALL: [Self; 4] = [Self::Result, Self::View, Self::Variable, Self::End];
}
