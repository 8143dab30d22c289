//! The order in which backward passes visit the nodes of their graphs. Only the program's framework knows this order.

#[cfg(feature = "candle")]
use std::num::NonZeroU64;

#[cfg(feature = "candle")]
use memtrace_core::snapshot::{GraphNode, GraphNodeKind, ThreadId};

#[cfg(feature = "candle")]
use super::Ledger;

/// Number of nodes that are kept: about a hundred backward passes of a deep network. A pass whose first nodes were
/// overwritten is not used.
pub(super) const MOST: usize = 1 << 16;

/// A graph node as the program describes it.
#[cfg(feature = "candle")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOverNode {
    /// Address of the block of the node's value, if that block is on the device.
    pub(crate) address: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) kind: GraphNodeKind,
}

#[cfg(feature = "candle")]
impl Ledger {
    pub(crate) fn hand_over(&mut self, thread: ThreadId, nodes: impl Iterator<Item = HandedOverNode>) {
        let time_ns = self.now();
        for (place, HandedOverNode { address, bytes, kind }) in (0..).zip(nodes) {
            let block = address.and_then(|address| NonZeroU64::new(self.live.get(address)?.raw_seq()));
            self.graph_nodes.push(GraphNode { time_ns, thread, place, kind, bytes, block });
        }
    }
}
