//! CUDA graphs. A launch is recorded as the actions of the graph's nodes.
//!
//! An allocation node has a fixed address from its creation on. A launch enters the nodes in the order of their
//! creation. A node is created after those that it depends on, so the nodes may run in that order. An allocation gets
//! the stack of its node's creation, because that line requested the memory. It gets the scopes of the launch, because
//! that phase holds the memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_core::snapshot::{Device, KernelId};

use super::attention::is_recording;
use super::driver::SUCCESS;
use super::notify;
use super::pointers::CallerPtr;
use super::pools;
use super::table::HandleTable;
use super::types::{Handle, PoolLocation};
use crate::record::memory::{OwnVec, System, own_vec, try_push};
use crate::record::uses::{OperationKind, UseAccess};
use crate::record::{EventSite, guard, uses};

/// What a node does, apart from allocations and frees.
#[derive(Clone, Copy, Debug)]
pub(super) enum GraphPart {
    /// Every node since the graph's beginning is known. Contains the number of the recording.
    Complete(u64),
    /// The start of a node's work.
    Work(OperationKind, KernelId),
    Use(u64, UseAccess, KernelId),
}

/// The marker of a graph whose nodes are all seen, if uses are recorded.
pub(super) fn complete() -> Option<GraphPart> {
    uses::with(|table| table.epoch).map(GraphPart::Complete)
}

/// An action of a node at a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// If `device` is `None`, it is the device of the stream on which the graph is launched.
    Alloc {
        address: u64,
        size: u64,
        device: Option<Device>,
        site: Option<EventSite>,
    },
    Free {
        address: u64,
    },
    Part(GraphPart),
}

/// Nodes of a graph, each with the id of the stream capture that it came from, or 0.
type Nodes = OwnVec<(u64, Node)>;

/// An executable graph (`CUgraphExec`).
pub(super) struct Program {
    nodes: OwnVec<Node>,
    /// Whether a launch first frees the memory that the last launch left allocated.
    frees_first: bool,
}

/// Graphs with known nodes.
pub(super) static GRAPHS: HandleTable<usize, Nodes> = HandleTable::new();
/// Executable graphs with known nodes.
pub(super) static PROGRAMS: HandleTable<usize, Program> = HandleTable::new();
/// Addresses that launches left allocated. Separate calls free these.
pub(super) static LIVE: HandleTable<u64, ()> = HandleTable::new().draws_attention();

/// Adds a node to a graph. `capture` is 0 for a node that was added explicitly.
pub(super) fn add(graph: usize, capture: u64, node: Node) {
    GRAPHS.change_or_insert(graph, || OwnVec::new_in(System), |nodes| _ = try_push(nodes, (capture, node)));
}

/// The site of a node's creation, if device memory is recorded.
pub(super) fn site() -> Option<EventSite> {
    if !is_recording() || guard::state() & guard::OWN != 0 {
        return None;
    }
    let _own = guard::own_work();
    Some(notify::site_here())
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocNode {
    location: PoolLocation,
    rest_of_pool: [u64; 9],
    access: usize,
    access_count: usize,
    size: usize,
    /// Written by the driver.
    address: u64,
}

pub(super) fn added_alloc(graph: Handle, parameters: CallerPtr<AllocNode>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(AllocNode { location, size, address, .. }) = parameters.written(result) {
            let device = pools::noted(location.device());
            add(graph.addr(), 0, Node::Alloc { address, size: size as u64, device, site: site() });
        }
    }
}

pub(super) fn added_free(graph: Handle, address: u64) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS {
            add(graph.addr(), 0, Node::Free { address });
        }
    }
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ChildNode {
    pub(super) graph: usize,
    ownership: c_int,
}

impl ChildNode {
    /// Whether the parent takes ownership of the child. Only such a child may have memory nodes.
    pub(super) fn is_moved(self) -> bool {
        /// `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`.
        const MOVE: c_int = 1;
        self.ownership == MOVE
    }
}

/// Gives the nodes of a child graph to the parent that took ownership of it.
fn moved(parent: usize, child: usize) {
    let take = |nodes: &mut Nodes| std::mem::replace(nodes, OwnVec::new_in(System));
    let nodes = GRAPHS.change(child, take).unwrap_or(OwnVec::new_in(System));
    GRAPHS.forget(child);
    let is_kept = |node: &Node| !matches!(node, Node::Part(GraphPart::Complete(_)));
    nodes.into_iter().filter(|(_, node)| is_kept(node)).for_each(|(capture, node)| add(parent, capture, node));
}

/// Returns the callback for a call that adds a node of any type. `CUgraphNodeParams` begins with the node's type.
pub(super) fn added(graph: Handle, kind: CallerPtr<c_int>) -> impl FnOnce(c_int) {
    const CHILD: c_int = 4;
    const ALLOC: c_int = 10;
    const FREE: c_int = 11;
    /// The offset of the parameters of the node's type.
    const PARAMETERS: usize = 16;
    move |result| match kind.written(result) {
        Some(CHILD) => {
            let child = kind.part::<ChildNode>(PARAMETERS).read().filter(|child| child.is_moved());
            child.into_iter().for_each(|child| moved(graph.addr(), child.graph));
        }
        Some(ALLOC) => added_alloc(graph, kind.part(PARAMETERS))(result),
        Some(FREE) => added_free(graph, kind.part(PARAMETERS).read().unwrap_or(0))(result),
        _ => {}
    }
}

/// Called at the end of a stream capture. The capture's nodes become the graph's. Nodes of other captures are dropped:
/// those captures failed, and the driver reused the handle of a failed capture's graph for this one.
pub(super) fn captured(graph: usize, capture: u64) {
    GRAPHS.change(graph, |nodes| {
        nodes.retain(|(of, _)| *of == 0 || *of == capture);
        nodes.iter_mut().for_each(|(of, _)| *of = 0);
    });
}

/// Forgets nodes that are known under a new graph's handle, because they belonged to an earlier graph.
pub(super) fn created(out: CallerPtr<usize>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(graph) = out.written(result) {
            GRAPHS.remove(graph).finish(result);
            if let Some(complete) = complete() {
                add(graph, 0, Node::Part(complete));
            }
        }
    }
}

static MADE_EXECUTABLE: AtomicU64 = AtomicU64::new(0);

/// How many graphs were made executable in this process.
pub(crate) fn executable_graphs() -> u64 {
    MADE_EXECUTABLE.load(Ordering::Relaxed)
}

/// An executable graph keeps the nodes that its graph has at this time.
pub(super) fn instantiated(out: CallerPtr<usize>, graph: Handle, flags: u64) -> impl FnOnce(c_int) {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
    const FREES_FIRST: u64 = 1;
    let known = |nodes: &mut Nodes| own_vec(nodes.iter().filter(|(capture, _)| *capture == 0).map(|(_, node)| *node));
    move |result| {
        let Some(program) = out.written(result) else { return };
        MADE_EXECUTABLE.fetch_add(1, Ordering::Relaxed);
        PROGRAMS.remove(program).finish(result);
        if let Some(nodes) = GRAPHS.change(graph.addr(), known).filter(|nodes| !nodes.is_empty()) {
            PROGRAMS.insert(program, Program { nodes, frees_first: flags & FREES_FIRST != 0 });
        }
    }
}

fn parts_in<'a>(nodes: impl Iterator<Item = &'a Node>) -> OwnVec<GraphPart> {
    own_vec(nodes.filter_map(|node| if let Node::Part(part) = node { Some(*part) } else { None }))
}

/// The work and the uses of a graph's nodes.
pub(super) fn parts(graph: usize) -> OwnVec<GraphPart> {
    let parts = |nodes: &mut Nodes| parts_in(nodes.iter().map(|(_, node)| node));
    GRAPHS.change(graph, parts).unwrap_or(OwnVec::new_in(System))
}

/// [`parts`] of an executable graph.
pub(super) fn program_parts(program: usize) -> OwnVec<GraphPart> {
    PROGRAMS.change(program, |program| parts_in(program.nodes.iter())).unwrap_or(OwnVec::new_in(System))
}

pub(super) fn add_to_program(program: usize, parts: &[GraphPart]) {
    PROGRAMS.change(program, |program| {
        parts.iter().for_each(|part| _ = try_push(&mut program.nodes, Node::Part(*part)));
    });
}

/// Adds parts to all graphs. Called if a call names a node, because memtrace does not know which graph has the node.
pub(super) fn add_to_all(parts: &[GraphPart]) {
    GRAPHS.change_all(|nodes| parts.iter().for_each(|part| _ = try_push(nodes, (0, Node::Part(*part)))));
}

/// The actions of a launch, in order.
pub(super) fn steps(program: usize) -> OwnVec<Node> {
    let known = |program: &mut Program| (own_vec(program.nodes.iter().copied()), program.frees_first);
    let Some((nodes, frees_first)) = PROGRAMS.change(program, known) else { return OwnVec::new_in(System) };
    let left = |node: &Node| match *node {
        Node::Alloc { address, .. } if frees_first && LIVE.get(address).is_some() => Some(Node::Free { address }),
        _ => None,
    };
    own_vec(nodes.iter().filter_map(left).chain(nodes.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_are_as_long_as_the_drivers() {
        assert_eq!((size_of::<AllocNode>(), std::mem::offset_of!(AllocNode, size)), (120, 104));
    }

    fn handle(number: usize) -> Handle {
        std::ptr::without_provenance_mut(number)
    }

    fn add_alloc(graph: usize) {
        add(graph, 0, Node::Alloc { address: 0x7003, size: 10, device: None, site: None });
    }

    fn is_known(graph: usize) -> bool {
        GRAPHS.change(graph, |_| ()).is_some()
    }

    fn is_program(program: usize) -> bool {
        PROGRAMS.change(program, |_| ()).is_some()
    }

    /// The driver gives the handle to another thread before the call that destroyed the graph has returned.
    #[test]
    fn a_handle_that_comes_again_at_once_is_not_forgotten() {
        let (graph, program) = (0x7101, 0x7102);
        let done = GRAPHS.destroying(graph);
        created(CallerPtr::to(&graph))(SUCCESS);
        add_alloc(graph);
        done(SUCCESS);
        let done = PROGRAMS.destroying(program);
        instantiated(CallerPtr::to(&program), handle(graph), 0)(SUCCESS);
        done(SUCCESS);
        assert!(is_known(graph) && is_program(program));
        GRAPHS.destroying(graph)(SUCCESS);
        PROGRAMS.destroying(program)(SUCCESS);
        assert!(!is_known(graph) && !is_program(program));
    }

    #[test]
    fn what_was_not_destroyed_is_known_still() {
        let (graph, program) = (0x7201, 0x7202);
        add_alloc(graph);
        instantiated(CallerPtr::to(&program), handle(graph), 0)(SUCCESS);
        GRAPHS.destroying(graph)(1);
        PROGRAMS.destroying(program)(1);
        assert!(is_known(graph) && is_program(program));
        created(CallerPtr::to(&graph))(SUCCESS);
        assert!(!is_known(graph), "another graph has the handle");
    }

    /// The driver destroys the graph of a failed capture, and may give its handle to the next capture.
    #[test]
    fn nodes_of_a_capture_that_failed_are_not_the_next_ones() {
        let (graph, program) = (0x7301, 0x7302);
        let free = |capture, address| add(graph, capture, Node::Free { address });
        [(5, 1), (6, 2), (5, 3)].into_iter().for_each(|(capture, address)| free(capture, address));
        captured(graph, 6);
        instantiated(CallerPtr::to(&program), handle(graph), 0)(SUCCESS);
        assert!(matches!(steps(program)[..], [Node::Free { address: 2 }]));
    }
}
