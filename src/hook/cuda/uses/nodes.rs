//! Nodes of CUDA graphs: what they use is kept with the graph, and counts at each launch.
//!
//! Parameters that a node is given later are added to those it had: a use too many delays the last use, and makes no
//! claim wrong. A graph that was created or captured before the recording is opaque.

use std::ffi::{c_int, c_void};

use super::arguments::Arguments;
use super::regions::Region3d;
use super::scan::{self, make_known};
use super::submit::is_wanted;
use crate::hook::cuda::capture::StreamCapture;
use crate::hook::cuda::driver::SUCCESS;
use crate::hook::cuda::graphs::{self, ChildNode, GraphPart, Node};
use crate::hook::cuda::pointers::CallerPtr;
use crate::hook::cuda::types::Handle;
use crate::record::memory::{OwnVec, System, own_vec, try_push};
use crate::record::uses::{OperationKind, UseAccess};
use crate::record::{guard, uses};

pub(super) type Parts = OwnVec<GraphPart>;

/// Addresses below and above are numbers: small ones, floats, several packed into one word.
fn may_be_address(word: u64) -> bool {
    (1 << 16..1 << 52).contains(&word)
}

fn parts_of(name: &[u8], work: OperationKind, ends: &[(u64, UseAccess)]) -> Parts {
    let kernel = uses::with(|table| table.kernel(name)).unwrap_or_default();
    let ends = ends.iter().map(|(address, access)| GraphPart::Use(*address, *access, kernel));
    own_vec(std::iter::once(GraphPart::Work(work, kernel)).chain(ends))
}

fn kernel_parts(function: Handle, arguments: Arguments) -> Parts {
    make_known(function);
    let mut words = OwnVec::new_in(System);
    let scan = uses::with(|table| {
        let (kernel, is_known) = scan::each(table, function, arguments, |_, word, access| {
            if may_be_address(word) {
                try_push(&mut words, (word, access));
            }
        });
        (kernel.unwrap_or_else(|| table.kernel(b"(unnamed kernel)")), is_known)
    });
    let Some((kernel, is_known)) = scan else { return OwnVec::new_in(System) };
    let work = GraphPart::Work(if is_known { OperationKind::Kernel } else { OperationKind::Opaque }, kernel);
    let uses = words.iter().map(|(word, access)| GraphPart::Use(*word, *access, kernel));
    own_vec(std::iter::once(work).chain(uses))
}

/// An operation on a captured stream.
pub(super) fn capture(capture: StreamCapture, name: &[u8], work: OperationKind, ends: &[(u64, UseAccess)]) {
    parts_of(name, work, ends).iter().for_each(|part| capture.add(|| Node::Part(*part)));
}

/// A launch on a captured stream.
pub(super) fn capture_kernel(capture: StreamCapture, function: Handle, arguments: Arguments) {
    kernel_parts(function, arguments).iter().for_each(|part| capture.add(|| Node::Part(*part)));
}

/// `CUDA_KERNEL_NODE_PARAMS`, all versions, up to `kern` of the second.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook::cuda) struct KernelNode {
    function: Handle,
    sizes: [u32; 7],
    parameters: CallerPtr<*const c_void>,
    extra: CallerPtr<usize>,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook::cuda) struct FillNode {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

fn of_kernel(node: Option<KernelNode>, second: Option<Handle>) -> Parts {
    let Some(node) = node else { return opaque("a graph's kernel") };
    // The second version has a kernel in place of a function.
    let function = if node.function.is_null() { second.unwrap_or(node.function) } else { node.function };
    kernel_parts(function, Arguments { parameters: node.parameters, extra: node.extra })
}

fn of_fill(node: Option<FillNode>) -> Parts {
    let Some(FillNode { to, pitch, element, width, height, .. }) = node else { return opaque("a graph's fill") };
    let width = width.saturating_mul(element as usize);
    let is_whole = pitch == width || height == 1;
    let access =
        if is_whole { UseAccess::Write(to, width.saturating_mul(height) as u64) } else { UseAccess::WriteRows };
    parts_of(b"cuGraphAddMemsetNode", OperationKind::Fill, &[(to, access)])
}

fn of_copy(node: Option<Region3d>) -> Parts {
    let Some(region) = node else { return opaque("a graph's copy") };
    let ends = own_vec(region.ends());
    parts_of(b"cuGraphAddMemcpyNode", OperationKind::Copy, &ends)
}

pub(super) fn opaque(name: &str) -> Parts {
    parts_of(name.as_bytes(), OperationKind::Opaque, &[])
}

/// The parts of another graph, which becomes a node; opaque if it is not known.
fn of_child(graph: usize) -> Parts {
    let known = graphs::parts(graph);
    let is_complete = known.iter().any(|part| matches!(part, GraphPart::Complete(_)));
    let parts = own_vec(known.iter().filter(|part| !matches!(part, GraphPart::Complete(_))).copied());
    if is_complete { parts } else { opaque("a child graph") }
}

/// What a node adds beside the child's own nodes: those that are moved stay in order with its memory nodes.
fn of_child_node(node: ChildNode) -> Parts {
    let parts = of_child(node.graph);
    let is_opaque = |part: &GraphPart| matches!(part, GraphPart::Work(OperationKind::Opaque, _));
    if node.is_moved() && !parts.iter().any(is_opaque) { OwnVec::new_in(System) } else { parts }
}

/// `CUgraphNodeParams`: the type, and the parameters of that type from byte 16 on.
fn of_any(node: CallerPtr<c_int>) -> Parts {
    let parameters = 16;
    match node.read() {
        Some(0) => of_kernel(node.part(parameters).read(), node.part(parameters + 56).read()),
        Some(1) => of_copy(node.part(parameters + 16).read()),
        Some(2) => of_fill(node.part(parameters).read()),
        Some(4) => node.part(parameters).read().map_or_else(|| opaque("a child graph"), of_child_node),
        // Host functions, events, semaphores, empty nodes and memory nodes use no blocks.
        Some(3 | 5..=11) => OwnVec::new_in(System),
        _ => opaque("a graph node of another kind"),
    }
}

/// The parts of a node, if uses are recorded.
fn wanted(parts: impl FnOnce() -> Parts) -> Option<Parts> {
    if !is_wanted() {
        return None;
    }
    let _own = guard::own_work();
    Some(parts())
}

/// What a hook does after a call that added a node.
fn add(graph: Handle, parts: Option<Parts>) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS {
            parts.iter().flatten().for_each(|part| graphs::add(graph.addr(), 0, Node::Part(*part)));
        }
    }
}

/// What a hook does after a call that changed a node of an executable graph, or of any graph.
fn set(program: Option<Handle>, parts: Option<Parts>) -> impl FnOnce(c_int) {
    move |result| {
        let Some(parts) = parts.filter(|_| result == SUCCESS) else { return };
        match program {
            Some(program) => graphs::add_to_program(program.addr(), &parts),
            None => graphs::add_to_all(&parts),
        }
    }
}

// The hooks of the driver's functions.

pub(in crate::hook::cuda) fn kernel_added(
    graph: Handle,
    node: CallerPtr<KernelNode>,
    second: bool,
) -> impl FnOnce(c_int) {
    add(graph, wanted(|| of_kernel(node.read(), second.then(|| node.part(56).read()).flatten())))
}

pub(in crate::hook::cuda) fn copy_added(graph: Handle, node: CallerPtr<Region3d>) -> impl FnOnce(c_int) {
    add(graph, wanted(|| of_copy(node.read())))
}

pub(in crate::hook::cuda) fn fill_added(graph: Handle, node: CallerPtr<FillNode>) -> impl FnOnce(c_int) {
    add(graph, wanted(|| of_fill(node.read())))
}

pub(in crate::hook::cuda) fn child_added(graph: Handle, child: Handle) -> impl FnOnce(c_int) {
    add(graph, wanted(|| of_child(child.addr())))
}

pub(in crate::hook::cuda) fn opaque_added(graph: Handle, name: &'static str) -> impl FnOnce(c_int) {
    add(graph, wanted(|| opaque(name)))
}

pub(in crate::hook::cuda) fn node_added(graph: Handle, node: CallerPtr<c_int>) -> impl FnOnce(c_int) {
    add(graph, wanted(|| of_any(node)))
}

pub(in crate::hook::cuda) fn kernel_set(node: CallerPtr<KernelNode>, second: bool) -> impl FnOnce(c_int) {
    set(None, wanted(|| of_kernel(node.read(), second.then(|| node.part(56).read()).flatten())))
}

pub(in crate::hook::cuda) fn copy_set(program: Option<Handle>, node: CallerPtr<Region3d>) -> impl FnOnce(c_int) {
    set(program, wanted(|| of_copy(node.read())))
}

pub(in crate::hook::cuda) fn fill_set(program: Option<Handle>, node: CallerPtr<FillNode>) -> impl FnOnce(c_int) {
    set(program, wanted(|| of_fill(node.read())))
}

pub(in crate::hook::cuda) fn child_set(program: Handle, child: Handle) -> impl FnOnce(c_int) {
    set(Some(program), wanted(|| of_child(child.addr())))
}

pub(in crate::hook::cuda) fn node_set(program: Option<Handle>, node: CallerPtr<c_int>) -> impl FnOnce(c_int) {
    set(program, wanted(|| of_any(node)))
}

pub(in crate::hook::cuda) fn exec_set(
    program: Handle,
    node: CallerPtr<KernelNode>,
    second: bool,
) -> impl FnOnce(c_int) {
    set(Some(program), wanted(|| of_kernel(node.read(), second.then(|| node.part(56).read()).flatten())))
}

/// An executable graph takes the parameters of another graph.
pub(in crate::hook::cuda) fn exec_updated(program: Handle, graph: Handle) -> impl FnOnce(c_int) {
    set(Some(program), wanted(|| of_child(graph.addr())))
}

pub(in crate::hook::cuda) fn cloned(out: CallerPtr<usize>, graph: Handle) -> impl FnOnce(c_int) {
    let parts = if is_wanted() { Some(graphs::parts(graph.addr())) } else { None };
    move |result| {
        if let Some((clone, parts)) = out.written(result).zip(parts) {
            parts.iter().for_each(|part| graphs::add(clone, 0, Node::Part(*part)));
        }
    }
}
