//! Memory of graphs: nodes of a graph allocate and free when it is launched, at addresses that were fixed
//! when the nodes were made. So a launch is entered as what its nodes do, in the order in which they were made.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::attention::{Reason, watching};
use super::driver::SUCCESS;
use super::tell;
use super::words::{Class, Handle, LocationOfPool, Outcome, Release, Stream, Whose};
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, try_push};
use crate::record::{Site, fork, guard};

/// What a node does when its graph is launched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    Alloc { address: u64, size: u64, whose: Whose, site: Option<Site> },
    Free { address: u64 },
}

impl Node {
    fn address(self) -> u64 {
        match self {
            Self::Alloc { address, .. } | Self::Free { address } => address,
        }
    }
}

/// Nodes of a graph with the capture that they came from, 0 for none.
type Nodes = OwnVec<(u64, Node)>;

struct Program {
    nodes: OwnVec<Node>,
    frees_first: bool,
}

struct Tables {
    graphs: OwnMap<usize, Nodes>,
    programs: OwnMap<usize, Program>,
    /// Addresses that a launch left allocated.
    live: OwnMap<u64, ()>,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables { graphs: own_map(), programs: own_map(), live: own_map() });

/// Graphs and programs with nodes: as long as there are none nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// There are live addresses: their frees must be seen.
static ANY_LIVE: Reason = Reason::new();

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const FREES_FIRST: u64 = 1;

fn with<T>(act: impl FnOnce(&mut Tables) -> T) -> T {
    let _no_fork = fork::no_fork();
    let mut tables = lock(&TABLES);
    let answer = act(&mut tables);
    COUNT.store(tables.graphs.len() + tables.programs.len(), Ordering::Release);
    ANY_LIVE.set(!tables.live.is_empty());
    answer
}

fn there_are_none() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// A graph got a node, by a capture or, with 0, by hand.
pub(super) fn add(graph: usize, capture: u64, node: Node) {
    with(|tables| {
        if tables.graphs.try_reserve(1).is_ok() {
            let nodes = tables.graphs.entry(graph).or_insert(OwnVec::new_in(System));
            try_push(nodes, (capture, node));
        }
    });
}

/// Where something is captured or added, if that is recorded.
pub(super) fn site() -> Option<Site> {
    if !watching() || guard::state() & guard::OWN != 0 {
        return None;
    }
    let _own = guard::own_work();
    Some(tell::site_here())
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocNode {
    location: LocationOfPool,
    rest_of_pool: [u64; 9],
    access: usize,
    access_count: usize,
    size: usize,
    address: u64,
}

/// `CUgraphNodeParams`, as far as it is about memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AnyNode {
    kind: c_int,
    reserved: [c_int; 3],
    /// The beginning of the node's own parameters.
    first: u64,
}

/// `cuGraphAddMemAllocNode`: what is to be done after it.
pub(super) fn added_alloc(graph: Handle, parameters: *const AllocNode) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS && !parameters.is_null() {
            // SAFETY: the driver took it, and wrote the address.
            let AllocNode { location, size, address, .. } = unsafe { parameters.read() };
            let whose = location.ordinal().map_or(Whose::Streams, Whose::Ordinal);
            add(graph.addr(), 0, Node::Alloc { address, size: size as u64, whose, site: site() });
        }
    }
}

/// `cuGraphAddMemFreeNode`: what is to be done after it.
pub(super) fn added_free(graph: Handle, address: u64) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS {
            add(graph.addr(), 0, Node::Free { address });
        }
    }
}

/// `cuGraphAddNode`: what is to be done after it.
pub(super) fn added(graph: Handle, parameters: *const AnyNode) -> impl FnOnce(c_int) {
    const ALLOC: c_int = 10;
    const FREE: c_int = 11;
    move |result| {
        if result != SUCCESS || parameters.is_null() {
            return;
        }
        // SAFETY: the driver took it.
        let kind = unsafe { (*parameters).kind };
        // SAFETY: as above; nothing is read.
        let first = unsafe { &raw const (*parameters).first };
        match kind {
            ALLOC => added_alloc(graph, first.cast())(result),
            // SAFETY: it is the node's address.
            FREE => added_free(graph, unsafe { first.read() })(result),
            _ => {}
        }
    }
}

/// A capture came to an end: its nodes are the graph's, and those of captures that failed are not.
pub(super) fn captured(graph: usize, capture: u64) {
    with(|tables| {
        if let Some(nodes) = tables.graphs.get_mut(&graph) {
            nodes.retain(|(of, _)| *of == 0 || *of == capture);
            nodes.iter_mut().for_each(|(of, _)| *of = 0);
        }
    });
}

/// Takes out the nodes that are known by a handle.
fn take(graph: usize) -> Option<Nodes> {
    if there_are_none() { None } else { with(|tables| tables.graphs.remove(&graph)) }
}

/// `cuGraphCreate`: what is to be done after it. Nodes that were known by this handle were another graph's.
pub(super) fn created(out: *const Handle) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS && !out.is_null() {
            // SAFETY: the driver has written it.
            take(unsafe { out.read() }.addr());
        }
    }
}

/// `cuGraphDestroy`: what is to be done after it. Its handle may be another's by then.
pub(super) fn destroyed(graph: Handle) -> impl FnOnce(c_int) {
    let graph = graph.addr();
    let taken = take(graph);
    move |result| {
        let refused = taken.filter(|_| result != SUCCESS);
        refused.into_iter().for_each(|nodes| with(|tables| put_back(&mut tables.graphs, graph, nodes)));
    }
}

fn put_back<T>(table: &mut OwnMap<usize, T>, handle: usize, taken: T) {
    if table.try_reserve(1).is_ok() {
        table.insert(handle, taken);
    }
}

/// A graph was made a program, which keeps the nodes that it had.
pub(super) fn instantiated(out: *const Handle, graph: Handle, flags: u64) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS && !out.is_null() && !there_are_none() {
            // SAFETY: the driver has written it.
            let program = unsafe { out.read() }.addr();
            with(|tables| tables.instantiate(program, graph.addr(), flags & FREES_FIRST != 0));
        }
    }
}

impl Tables {
    fn instantiate(&mut self, program: usize, graph: usize, frees_first: bool) {
        self.programs.remove(&program);
        let mut nodes = OwnVec::new_in(System);
        for (_, node) in self.graphs.get(&graph).into_iter().flatten().filter(|(capture, _)| *capture == 0) {
            try_push(&mut nodes, *node);
        }
        if !nodes.is_empty() && self.programs.try_reserve(1).is_ok() {
            self.programs.insert(program, Program { nodes, frees_first });
        }
    }

    fn step(&mut self, node: Node) {
        match node {
            Node::Free { address } => _ = self.live.remove(&address),
            Node::Alloc { address, .. } if self.live.try_reserve(1).is_ok() => _ = self.live.insert(address, ()),
            Node::Alloc { .. } => {}
        }
    }

    /// What a launch does, in order.
    fn launch(&mut self, program: usize) -> OwnVec<Node> {
        let mut steps = OwnVec::new_in(System);
        let Some(program) = self.programs.get(&program) else { return steps };
        if program.frees_first {
            let left = program.nodes.iter().filter(|node| matches!(node, Node::Alloc { .. }));
            for node in left.filter(|node| self.live.contains_key(&node.address())) {
                try_push(&mut steps, Node::Free { address: node.address() });
            }
        }
        program.nodes.iter().for_each(|node| _ = try_push(&mut steps, *node));
        for node in &steps {
            self.step(*node);
        }
        steps
    }
}

/// `cuGraphExecDestroy`: what is to be done after it. Its handle may be another's by then.
pub(super) fn program_destroyed(program: Handle) -> impl FnOnce(c_int) {
    let program = program.addr();
    let taken = if there_are_none() { None } else { with(|tables| tables.programs.remove(&program)) };
    move |result| {
        let refused = taken.filter(|_| result != SUCCESS);
        refused.into_iter().for_each(|taken| with(|tables| put_back(&mut tables.programs, program, taken)));
    }
}

/// `cuGraphLaunch`: what is to be done after it.
pub(super) fn launched(program: Handle, stream: Stream) -> impl FnOnce(c_int) {
    move |result| {
        if result != SUCCESS || there_are_none() {
            return;
        }
        for node in with(|tables| tables.launch(program.addr())) {
            match node {
                Node::Alloc { address, size, whose, site } => {
                    let outcome = Outcome { result, class: Class::Graph, address, size, stream, whose, took: 0 };
                    tell::tell_alloc_at(&outcome, site);
                }
                Node::Free { address } => {
                    let told = tell::tell_free(Release { class: Class::Graph, address, stream });
                    tell::after_free(result, told);
                }
            }
        }
    }
}

/// Memory that a launch left is freed by a call of its own. True if it is such memory.
pub(super) fn freed(address: u64) -> bool {
    ANY_LIVE.holds() && with(|tables| tables.live.remove(&address).is_some())
}

/// It was not freed after all.
pub(super) fn free_was_refused(address: u64) {
    with(|tables| _ = tables.live.try_reserve(1).is_ok().then(|| tables.live.insert(address, ())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_are_as_long_as_the_drivers() {
        assert_eq!((size_of::<AllocNode>(), std::mem::offset_of!(AllocNode, size)), (120, 104));
        assert_eq!(std::mem::offset_of!(AnyNode, first), 16);
    }

    fn handle(number: usize) -> Handle {
        std::ptr::without_provenance_mut(number)
    }

    fn add_alloc(graph: usize) {
        add(graph, 0, Node::Alloc { address: 0x7003, size: 10, whose: Whose::Streams, site: None });
    }

    /// The driver gives the handle to another thread before the call that destroyed it is over.
    #[test]
    fn a_handle_that_comes_again_at_once_is_not_forgotten() {
        let (graph, program) = (0x7101, 0x7102);
        let done = destroyed(handle(graph));
        created(&handle(graph))(SUCCESS);
        add_alloc(graph);
        done(SUCCESS);
        let done = program_destroyed(handle(program));
        instantiated(&handle(program), handle(graph), 0)(SUCCESS);
        done(SUCCESS);
        assert!(with(|tables| tables.graphs.contains_key(&graph) && tables.programs.contains_key(&program)));
        destroyed(handle(graph))(SUCCESS);
        program_destroyed(handle(program))(SUCCESS);
        assert!(with(|tables| !tables.graphs.contains_key(&graph) && !tables.programs.contains_key(&program)));
    }

    #[test]
    fn what_was_not_destroyed_is_known_still() {
        let (graph, program) = (0x7201, 0x7202);
        add_alloc(graph);
        instantiated(&handle(program), handle(graph), 0)(SUCCESS);
        destroyed(handle(graph))(1);
        program_destroyed(handle(program))(1);
        assert!(with(|tables| tables.graphs.contains_key(&graph) && tables.programs.contains_key(&program)));
        created(&handle(graph))(SUCCESS);
        assert!(with(|tables| !tables.graphs.contains_key(&graph)), "another graph has the handle");
    }
    /// The driver destroys the graph of a capture that failed, and may give its handle to the next capture.
    #[test]
    fn nodes_of_a_capture_that_failed_are_not_the_next_ones() {
        let (graph, program) = (0x7301, 0x7302);
        let free = |capture, address| add(graph, capture, Node::Free { address });
        [(5, 1), (6, 2), (5, 3)].into_iter().for_each(|(capture, address)| free(capture, address));
        captured(graph, 6);
        instantiated(&handle(program), handle(graph), 0)(SUCCESS);
        let nodes = with(|tables| tables.launch(program));
        assert_eq!(nodes.iter().map(|node| node.address()).collect::<Vec<_>>(), [2]);
    }
}
