//! Graphs: nodes in the order in which they were added. Allocations and frees among them act when the
//! graph is launched; all others do nothing.

use super::{Machine, POOLS_OF_A_DEVICE};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::memory::Span;
use crate::own::{OwnVec, own_vec};

/// Types of nodes: `CUgraphNodeType`.
pub(crate) mod node_type {
    pub(crate) const KERNEL: u32 = 0;
    pub(crate) const COPY: u32 = 1;
    pub(crate) const FILL: u32 = 2;
    pub(crate) const HOST: u32 = 3;
    pub(crate) const GRAPH: u32 = 4;
    pub(crate) const EMPTY: u32 = 5;
    pub(crate) const ALLOCATE: u32 = 10;
    pub(crate) const FREE: u32 = 11;
    pub(crate) const CONDITIONAL: u32 = 13;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) handle: u64,
    pub(crate) kind: u32,
    /// What an allocation gives and a free frees, else 0.
    pub(crate) address: u64,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: OwnVec<Node>,
    /// The handles of the nodes, for who asks on what the next captured node depends.
    pub(crate) handles: OwnVec<u64>,
}

/// What an allocation node gives. Its address is nobody else's while a graph or an executable graph has a
/// node for it, or the memory is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphMemory {
    pub(crate) device: usize,
    pub(crate) size: u64,
    /// Bytes taken of the device: `size`, rounded up.
    pub(crate) taken: u64,
    /// Bytes of addresses.
    pub(crate) length: u64,
    owner: u64,
    /// The first graph that got a node that frees it.
    freed_by: Option<u64>,
    holders: u32,
}

impl Machine {
    pub(crate) fn create_graph(&mut self) -> u64 {
        let handle = self.new_handle();
        self.graphs.insert(handle, Graph { nodes: own_vec(), handles: own_vec() });
        handle
    }

    pub(crate) fn graph(&self, handle: u64) -> Answer<&Graph> {
        self.graphs.get(&handle).ok_or(INVALID_VALUE)
    }

    /// What its launches left allocated stays.
    pub(crate) fn destroy_graph(&mut self, handle: u64) -> Answer {
        let graph = self.graphs.remove(&handle).ok_or(INVALID_VALUE)?;
        self.let_go_of_all(&graph.nodes);
        Ok(())
    }

    /// A graph with memory nodes cannot be cloned.
    pub(crate) fn clone_graph(&mut self, handle: u64) -> Answer<u64> {
        if self.has_memory(handle)? {
            return Err(INVALID_VALUE);
        }
        let clone = self.create_graph();
        for index in 0..self.graph(handle)?.nodes.len() {
            let kind = self.graph(handle)?.nodes.get(index).map_or(node_type::EMPTY, |node| node.kind);
            self.add_node(clone, kind, 0)?;
        }
        Ok(clone)
    }

    pub(super) fn has_memory(&self, graph: u64) -> Answer<bool> {
        Ok(has_memory(&self.graph(graph)?.nodes))
    }

    /// Adds a node; gives its handle.
    pub(crate) fn add_node(&mut self, graph: u64, kind: u32, address: u64) -> Answer<u64> {
        let handle = self.new_handle();
        let graph = self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        graph.nodes.push(Node { handle, kind, address });
        graph.handles.push(handle);
        Ok(handle)
    }

    /// Adds a node that allocates; gives its handle and the address.
    pub(crate) fn add_allocation(&mut self, graph: u64, device: usize, size: u64) -> Answer<(u64, u64)> {
        self.graph(graph)?;
        if !self.config.pools {
            return Err(NOT_SUPPORTED);
        }
        let grain = self.pools.get(graph_pool(device)).ok_or(INVALID_VALUE)?.grain;
        let taken = size.checked_next_multiple_of(grain).filter(|taken| *taken > 0).ok_or(INVALID_VALUE)?;
        let Span { base: address, length } = Span::reserve(taken, 0).ok_or(OUT_OF_MEMORY)?;
        let memory = GraphMemory { device, size, taken, length, owner: graph, freed_by: None, holders: 1 };
        self.graph_memory.insert(address, memory);
        Ok((self.add_node(graph, node_type::ALLOCATE, address)?, address))
    }

    /// Adds a node that frees what a node of this graph or of another one allocates.
    pub(crate) fn add_free(&mut self, graph: u64, address: u64) -> Answer<u64> {
        let frees_it = |node: &Node| node.kind == node_type::FREE && node.address == address;
        if self.graph(graph)?.nodes.iter().any(frees_it) {
            return Err(INVALID_VALUE);
        }
        let memory = self.graph_memory.get_mut(&address).ok_or(INVALID_VALUE)?;
        // Either the graph that allocates it frees it, or others do.
        if memory.freed_by.is_some_and(|other| (other == memory.owner) != (graph == memory.owner)) {
            return Err(INVALID_VALUE);
        }
        memory.freed_by = memory.freed_by.or(Some(graph));
        memory.holders += 1;
        self.add_node(graph, node_type::FREE, address)
    }

    pub(crate) fn node(&self, handle: u64) -> Answer<Node> {
        let mut nodes = self.graphs.values().flat_map(|graph| graph.nodes.iter());
        nodes.find(|node| node.handle == handle).copied().ok_or(INVALID_VALUE)
    }

    /// What a node of that kind is about: its address, and what is known of the memory there.
    pub(crate) fn memory_of_node(&self, handle: u64, kind: u32) -> Answer<(u64, Option<GraphMemory>)> {
        let node = self.node(handle)?;
        if node.kind != kind {
            return Err(INVALID_VALUE);
        }
        Ok((node.address, self.graph_memory.get(&node.address).copied()))
    }

    pub(super) fn hold(&mut self, address: u64) {
        if let Some(memory) = self.graph_memory.get_mut(&address) {
            memory.holders += 1;
        }
    }

    /// The last one to let go gives the addresses back.
    pub(super) fn let_go(&mut self, address: u64) {
        let Some(memory) = self.graph_memory.get_mut(&address) else { return };
        memory.holders -= 1;
        if memory.holders == 0 {
            Span { base: address, length: memory.length }.release();
            self.graph_memory.remove(&address);
        }
    }

    pub(super) fn let_go_of_all(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.let_go(node.address);
        }
    }
}

pub(super) fn has_memory(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| matches!(node.kind, node_type::ALLOCATE | node_type::FREE))
}

/// The index of the device's memory for graphs, which counts as a pool.
pub(super) fn graph_pool(device: usize) -> usize {
    device * POOLS_OF_A_DEVICE + 3
}
