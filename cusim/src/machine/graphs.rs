//! CUDA graphs: nodes in the order in which they were added. Only allocations and frees have an effect at a launch.

use super::{SimMachine, pool_index};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, demand, demand_or};
use crate::history::BlockKind;
use crate::memory::Span;
use crate::own::{MmapVec, mmap_vec};

/// `CUgraphNodeType`.
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
pub(crate) struct GraphNode {
    pub(crate) handle: u64,
    pub(crate) kind: u32,
    /// The address that the node allocates or frees, or 0.
    pub(crate) address: u64,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: MmapVec<GraphNode>,
    /// The handles of the nodes, in an array that programs read.
    pub(crate) handles: MmapVec<u64>,
    /// The graph that took this graph over as a child.
    parent: Option<u64>,
}

/// Memory of an allocation node. Its address stays reserved while a graph or an executable graph has a node for it, or
/// the memory is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeMemory {
    pub(crate) device: usize,
    pub(crate) size: u64,
    /// `size` rounded up.
    pub(crate) taken: u64,
    /// The reserved addresses.
    pub(crate) length: u64,
    owner: u64,
    /// The first graph with a node that frees this memory.
    freed_by: Option<u64>,
    holders: u32,
}

impl SimMachine {
    pub(crate) fn create_graph(&mut self) -> u64 {
        let handle = self.new_handle();
        self.graphs.insert(handle, Graph { nodes: mmap_vec(), handles: mmap_vec(), parent: None });
        handle
    }

    pub(crate) fn graph(&self, handle: u64) -> Answer<&Graph> {
        self.graphs.get(&handle).ok_or(INVALID_VALUE)
    }

    /// A graph that no other one has taken over.
    pub(super) fn own_graph(&self, handle: u64) -> Answer<&Graph> {
        self.graph(handle).and_then(|graph| if graph.parent.is_none() { Ok(graph) } else { Err(INVALID_VALUE) })
    }

    /// Destroys a graph. Memory that launches left allocated stays.
    pub(crate) fn destroy_graph(&mut self, handle: u64) -> Answer {
        self.own_graph(handle)?;
        let graph = self.graphs.remove(&handle).ok_or(INVALID_VALUE)?;
        self.release_memory_of(&graph.nodes);
        self.end_children_of(handle);
        Ok(())
    }

    fn end_children_of(&mut self, parent: u64) {
        while let Some((&child, _)) = self.graphs.iter().find(|(_, graph)| graph.parent == Some(parent)) {
            self.graphs.remove(&child);
            self.end_children_of(child);
        }
    }

    /// Adds a node with a copy of a graph, which must not have memory nodes.
    pub(crate) fn add_copy(&mut self, graph: u64, child: u64) -> Answer<u64> {
        if self.has_memory(child)? { Err(INVALID_VALUE) } else { self.add_node(graph, node_type::GRAPH, 0) }
    }

    /// Adds a node that takes a graph over, with its memory nodes. A launch runs the memory nodes in the new node's
    /// place. Their memory and the child's handle then belong to the parent.
    pub(crate) fn add_child(&mut self, graph: u64, child: u64) -> Answer<u64> {
        self.graph(graph)?;
        self.own_graph(child)?;
        demand(graph != child)?;
        let node = self.add_node(graph, node_type::GRAPH, 0)?;
        let moved = self.graphs.get_mut(&child).ok_or(INVALID_VALUE)?;
        moved.parent = Some(graph);
        let nodes = std::mem::replace(&mut moved.nodes, mmap_vec());
        self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.nodes.extend(nodes);
        for memory in self.graph_memory.values_mut() {
            memory.owner = if memory.owner == child { graph } else { memory.owner };
            memory.freed_by = memory.freed_by.map(|other| if other == child { graph } else { other });
        }
        Ok(node)
    }

    /// Clones a graph. A graph with memory nodes cannot be cloned.
    pub(crate) fn clone_graph(&mut self, handle: u64) -> Answer<u64> {
        demand(!self.has_memory(handle)?)?;
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

    pub(crate) fn add_node(&mut self, graph: u64, kind: u32, address: u64) -> Answer<u64> {
        let handle = self.new_handle();
        let graph = self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        graph.nodes.push(GraphNode { handle, kind, address });
        graph.handles.push(handle);
        Ok(handle)
    }

    /// Adds an allocation node; returns its handle and its address.
    pub(crate) fn add_allocation(&mut self, graph: u64, device: usize, size: u64) -> Answer<(u64, u64)> {
        self.own_graph(graph)?;
        demand_or(self.config.pools, NOT_SUPPORTED)?;
        let grain = self.pool_at(pool_index(device, BlockKind::Graph))?.grain;
        let taken = size.checked_next_multiple_of(grain).filter(|taken| *taken > 0).ok_or(INVALID_VALUE)?;
        let Span { base: address, length } = Span::reserve(taken, 0).ok_or(OUT_OF_MEMORY)?;
        let memory = NodeMemory { device, size, taken, length, owner: graph, freed_by: None, holders: 1 };
        self.graph_memory.insert(address, memory);
        Ok((self.add_node(graph, node_type::ALLOCATE, address)?, address))
    }

    /// Adds a node that frees memory of an allocation node, of this graph or of another one.
    pub(crate) fn add_free(&mut self, graph: u64, address: u64) -> Answer<u64> {
        let frees_it = |node: &GraphNode| node.kind == node_type::FREE && node.address == address;
        demand(!self.own_graph(graph)?.nodes.iter().any(frees_it))?;
        let memory = self.graph_memory.get_mut(&address).ok_or(INVALID_VALUE)?;
        // Memory must be freed either by the graph that allocates it or by others, not by both.
        demand(memory.freed_by.is_none_or(|other| (other == memory.owner) == (graph == memory.owner)))?;
        memory.freed_by = memory.freed_by.or(Some(graph));
        memory.holders += 1;
        self.add_node(graph, node_type::FREE, address)
    }

    pub(crate) fn node(&self, handle: u64) -> Answer<GraphNode> {
        let mut nodes = self.graphs.values().flat_map(|graph| graph.nodes.iter());
        nodes.find(|node| node.handle == handle).copied().ok_or(INVALID_VALUE)
    }

    /// The address of an allocation or free node, and its memory if it still exists.
    pub(crate) fn memory_of_node(&self, handle: u64, kind: u32) -> Answer<(u64, Option<NodeMemory>)> {
        let node = self.node(handle)?;
        demand(node.kind == kind)?;
        Ok((node.address, self.graph_memory.get(&node.address).copied()))
    }

    pub(super) fn retain_memory(&mut self, address: u64) {
        if let Some(memory) = self.graph_memory.get_mut(&address) {
            memory.holders += 1;
        }
    }

    /// Releases a reference; the last one unmaps the addresses.
    pub(super) fn release_memory(&mut self, address: u64) {
        let Some(memory) = self.graph_memory.get_mut(&address) else { return };
        memory.holders -= 1;
        if memory.holders == 0 {
            Span { base: address, length: memory.length }.release();
            self.graph_memory.remove(&address);
        }
    }

    pub(super) fn release_memory_of(&mut self, nodes: &[GraphNode]) {
        for node in nodes {
            self.release_memory(node.address);
        }
    }
}

pub(super) fn has_memory(nodes: &[GraphNode]) -> bool {
    nodes.iter().any(|node| matches!(node.kind, node_type::ALLOCATE | node_type::FREE))
}
