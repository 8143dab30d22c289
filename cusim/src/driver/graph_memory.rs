//! Graph nodes that allocate and free, and the device's memory for graphs.

use super::abi::{ALLOCATION_PINNED, LOCATION_DEVICE, Out, answer};
use super::capture::check_nodes;
use super::graph::add_idle;
use super::process::{with, with_device};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand};
use crate::history::BlockKind;
use crate::machine::node_type;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Allocation {
    allocation: u32,
    handles: u32,
    location: u32,
    device: i32,
    /// The remaining fields of `CUmemPoolProps`.
    others: [u64; 9],
    access: u64,
    access_count: usize,
    size: usize,
    /// Written by the driver.
    address: u64,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Child {
    graph: u64,
    ownership: u32,
}

/// `CUgraphChildGraphNodeOwnership`.
const COPY: u32 = 0;
const MOVE: u32 = 1;

/// The offset of a node type's parameters in `CUgraphNodeParams`.
const PARAMETERS: usize = 16;

driver! {
    fn cuGraphAddMemAllocNode(
        node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, parameters: Out<Allocation>,
    ) {
        node.check()?;
        let given = parameters.get()?;
        demand((given.allocation, given.location) == (ALLOCATION_PINNED, LOCATION_DEVICE))?;
        let (handle, address) = with(|machine| {
            let device = machine.device(given.device)?;
            check_nodes(machine, graph, dependencies, count)?;
            machine.add_allocation(graph, device, given.size as u64)
        })?;
        parameters.set(Allocation { address, ..given })?;
        node.set(handle)
    }

    fn cuGraphAddMemFreeNode(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, address: u64) {
        node.set_with(|machine| {
            check_nodes(machine, graph, dependencies, count)?;
            machine.add_free(graph, address)
        })
    }

    fn cuGraphAddNode(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, parameters: Out<u32>) {
        let of_kind = parameters.cast::<u8>().at(PARAMETERS);
        match parameters.get()? {
            node_type::ALLOCATE => {
                answer(cuGraphAddMemAllocNode(node, graph, dependencies, count, of_kind.cast()))
            }
            node_type::FREE => {
                answer(cuGraphAddMemFreeNode(node, graph, dependencies, count, of_kind.cast().get()?))
            }
            node_type::GRAPH => add_child(node, graph, (dependencies, count), of_kind.cast().get()?),
            node_type::CONDITIONAL => Err(NOT_SUPPORTED),
            kind if kind < node_type::CONDITIONAL => add_idle(node, graph, (dependencies, count), kind),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuGraphAddChildGraphNode(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, child: u64) =>
        add_child(node, graph, (dependencies, count), Child { graph: child, ownership: COPY });

    fn cuGraphAddNode_v2(
        node: Out<u64>, graph: u64, dependencies: Out<u64>, _data: usize, count: usize, parameters: Out<u32>,
    ) | cuGraphAddNode_v3() =>
        answer(cuGraphAddNode(node, graph, dependencies, count, parameters));

    fn cuGraphMemAllocNodeGetParams(node: u64, parameters: Out<Allocation>) {
        with(|machine| {
            let (address, memory) = machine.memory_of_node(node, node_type::ALLOCATE)?;
            let memory = memory.ok_or(INVALID_VALUE)?;
            let (device, size) = (memory.device as i32, memory.size as usize);
            let (allocation, location) = (ALLOCATION_PINNED, LOCATION_DEVICE);
            parameters.set(Allocation { allocation, location, device, size, address, ..Allocation::default() })
        })
    }

    fn cuGraphMemFreeNodeGetParams(node: u64, address: Out<u64>) =>
        with(|machine| address.set(machine.memory_of_node(node, node_type::FREE)?.0));

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) {
        with_device(device, |machine, device| {
            let counters = machine.counters(device, BlockKind::Graph);
            value.set(match attribute {
                USED => counters.used,
                USED_HIGH => counters.used_high,
                RESERVED => counters.reserved,
                RESERVED_HIGH => counters.reserved_high,
                _ => return Err(INVALID_VALUE),
            })
        })
    }

    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) {
        with_device(device, |machine, device| {
            let counters = machine.graph_counters_mut(device)?;
            match attribute {
                _ if value.get()? != 0 => return Err(INVALID_VALUE),
                USED_HIGH => counters.used_high = counters.used,
                RESERVED_HIGH => counters.reserved_high = counters.reserved,
                _ => return Err(INVALID_VALUE),
            }
            Ok(())
        })
    }

    fn cuDeviceGraphMemTrim(device: i32) {
        with_device(device, |machine, device| {
            machine.trim_graphs(device);
            Ok(())
        })
    }
}

fn add_child(node: Out<u64>, graph: u64, (nodes, count): (Out<u64>, usize), child: Child) -> Answer {
    node.set_with(|machine| {
        check_nodes(machine, graph, nodes, count)?;
        match child.ownership {
            COPY => machine.add_copy(graph, child.graph),
            MOVE => machine.add_child(graph, child.graph),
            _ => Err(INVALID_VALUE),
        }
    })
}

const USED: u32 = 0;
const USED_HIGH: u32 = 1;
const RESERVED: u32 = 2;
const RESERVED_HIGH: u32 = 3;
