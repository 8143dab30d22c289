//! The order in which backward passes go through their graphs: only the program's framework knows it.

#[cfg(feature = "candle")]
use std::num::NonZeroU64;

#[cfg(feature = "candle")]
use memtrace_core::snapshot::{GraphNode, GraphNodeKind, ThreadId};

#[cfg(feature = "candle")]
use super::Ledger;

/// Nodes that are kept: those of a hundred steps of a deep network. A pass of which the first are gone is not used.
pub(super) const MOST: usize = 1 << 16;

/// A node as the program knows it.
#[cfg(feature = "candle")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOverNode {
    /// Where its value's block begins, if that is on the device.
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
