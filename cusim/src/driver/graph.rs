//! CUDA graphs, built node by node or by a stream capture. Only allocation and free nodes have an effect.

use super::abi::{Out, answer};
use super::call::check_stream;
use super::capture::check_nodes;
use super::process::{begin, with};
use super::thread::current;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand_or};
use crate::faults::CallKind;
use crate::machine::node_type;

/// Offsets of outputs in `CUDA_GRAPH_INSTANTIATE_PARAMS`, in 8-byte words. The structure begins with the flags.
const WRONG_NODE: usize = 2;
const RESULT: usize = 3;

driver! {
    fn cuGraphCreate(graph: Out<u64>, flags: u32) =>
        if flags == 0 { graph.set_with(|machine| Ok(machine.create_graph())) } else { Err(INVALID_VALUE) };
    fn cuGraphDestroy(graph: u64) => with(|machine| machine.destroy_graph(graph));
    fn cuGraphClone(clone: Out<u64>, graph: u64) => clone.set_with(|machine| machine.clone_graph(graph));

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        with(|machine| {
            let handles = &machine.graph(graph)?.handles;
            if nodes.check().is_err() {
                return count.set(handles.len());
            }
            let room = count.get()?;
            for index in 0..room {
                nodes.at(index).set(handles.get(index).copied().unwrap_or(0))?;
            }
            count.set(handles.len().min(room))
        })
    }

    fn cuGraphNodeGetType(node: u64, kind: Out<u32>) => with(|machine| kind.set(machine.node(node)?.kind));
    fn cuGraphAddEmptyNode(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize) =>
        add_idle(node, graph, (dependencies, count), node_type::EMPTY);
    fn cuGraphAddKernelNode_v2(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, _parameters: usize)
    | cuGraphAddKernelNode() =>
        add_idle(node, graph, (dependencies, count), node_type::KERNEL);
    fn cuGraphAddHostNode(node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, _parameters: usize) =>
        add_idle(node, graph, (dependencies, count), node_type::HOST);
    fn cuGraphAddMemcpyNode(
        node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, _parameters: usize, _context: u64,
    ) =>
        add_idle(node, graph, (dependencies, count), node_type::COPY);
    fn cuGraphAddMemsetNode(
        node: Out<u64>, graph: u64, dependencies: Out<u64>, count: usize, _parameters: usize, _context: u64,
    ) =>
        add_idle(node, graph, (dependencies, count), node_type::FILL);
    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, flags: u64) =>
        executable.set_with(|machine| machine.instantiate(graph, flags));

    fn cuGraphInstantiate(executable: Out<u64>, graph: u64, wrong_node: Out<u64>, log: Out<u8>, room: usize)
    | cuGraphInstantiate_v2() {
        wrong_node.offer(0);
        if room > 0 {
            log.offer(0);
        }
        answer(cuGraphInstantiateWithFlags(executable, graph, 0))
    }

    fn cuGraphInstantiateWithParams(executable: Out<u64>, graph: u64, parameters: Out<u64>)
    | cuGraphInstantiateWithParams_ptsz() {
        let instantiated = answer(cuGraphInstantiateWithFlags(executable, graph, parameters.get()?));
        parameters.at(WRONG_NODE).set(0)?;
        parameters.at(RESULT).cast().set(u32::from(instantiated.is_err()))?;
        instantiated
    }

    fn cuGraphLaunch(executable: u64, stream: u64) | cuGraphLaunch_ptsz(stream) {
        begin(CallKind::Launch)?;
        with(|machine| {
            let context = machine.context_of(stream, current())?;
            let has_memory = machine.executable(executable)?.has_memory();
            if machine.captured_graph(stream)?.is_none() {
                return machine.launch(executable, context, stream);
            }
            demand_or(!has_memory, NOT_SUPPORTED)?;
            machine.captures(stream, node_type::GRAPH).map(|_| ())
        })
    }

    fn cuGraphUpload(executable: u64, stream: u64) | cuGraphUpload_ptsz(stream) {
        with(|machine| machine.executable(executable).map(|_| ()))?;
        check_stream(stream)
    }

    fn cuGraphExecDestroy(executable: u64) => with(|machine| machine.destroy_executable(executable));
}

/// Adds a node that does nothing.
pub(super) fn add_idle(node: Out<u64>, graph: u64, (nodes, count): (Out<u64>, usize), kind: u32) -> Answer {
    node.set_with(|machine| {
        check_nodes(machine, graph, nodes, count)?;
        machine.add_node(graph, kind, 0)
    })
}
