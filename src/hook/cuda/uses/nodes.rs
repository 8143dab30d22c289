//! Nodes of CUDA graphs. Their uses are kept with the graph, and count at each launch.
//!
//! If a node gets new parameters later, their uses are added to those of the earlier parameters. Uses that no longer
//! happen can make a block's last use seem later than it is, but not earlier. A graph that was created or captured
//! before the recording is opaque: its launches may use any block.

use std::ffi::{c_int, c_void};

use super::arguments::Arguments;
use super::regions::Region3d;
use super::scan::{self, make_known};
use super::submit::{is_wanted, wanted};
use crate::hook::cuda::capture::StreamCapture;
use crate::hook::cuda::driver::SUCCESS;
use crate::hook::cuda::graphs::{self, ChildNode, GraphPart, Node};
use crate::hook::cuda::pointers::CallerPtr;
use crate::hook::cuda::types::Handle;
use crate::record::memory::{OwnVec, System, own_vec, try_push};
use crate::record::uses::{self, OperationKind, UseAccess};

pub(super) type Parts = OwnVec<GraphPart>;

/// Whether an argument's word may be an address. Words outside this range are numbers: small ones, floats, or several
/// in one word.
fn may_be_address(word: u64) -> bool {
    (1 << 16..1 << 52).contains(&word)
}

fn parts_of(name: &[u8], work: OperationKind, ends: &[(u64, UseAccess)]) -> Parts {
    let kernel = uses::with(|table| table.kernels.id(name)).unwrap_or_default();
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
        (kernel.unwrap_or_else(|| table.kernels.id(b"(unnamed kernel)")), is_known)
    });
    let Some((kernel, is_known)) = scan else { return OwnVec::new_in(System) };
    let work = GraphPart::Work(if is_known { OperationKind::Kernel } else { OperationKind::Opaque }, kernel);
    let uses = words.iter().map(|(word, access)| GraphPart::Use(*word, *access, kernel));
    own_vec(std::iter::once(work).chain(uses))
}

/// Adds an operation on a captured stream to the graph.
pub(super) fn capture(capture: StreamCapture, name: &[u8], work: OperationKind, ends: &[(u64, UseAccess)]) {
    parts_of(name, work, ends).iter().for_each(|part| capture.used(*part));
}

/// Adds a launch on a captured stream to the graph.
pub(super) fn capture_kernel(capture: StreamCapture, function: Handle, arguments: Arguments) {
    kernel_parts(function, arguments).iter().for_each(|part| capture.used(*part));
}

/// The fields of all versions of `CUDA_KERNEL_NODE_PARAMS`. The second version has `kern` after them.
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

/// The parts of a kernel's node. In the second version of the parameters, a kernel handle (`kern`) may take the place
/// of the function.
pub(in crate::hook::cuda) fn kernel_node(node: CallerPtr<KernelNode>, has_second: bool) -> Parts {
    let Some(KernelNode { function, parameters, extra, .. }) = node.read() else { return opaque("a graph's kernel") };
    let second = if function.is_null() && has_second { node.part(56).read() } else { None };
    kernel_parts(second.unwrap_or(function), Arguments { parameters, extra })
}

pub(in crate::hook::cuda) fn fill_node(node: CallerPtr<FillNode>) -> Parts {
    let Some(node) = node.read() else { return opaque("a graph's fill") };
    let FillNode { to, pitch, element, width, height, .. } = node;
    let width = width.saturating_mul(element as usize);
    let is_whole = pitch == width || height == 1;
    let access =
        if is_whole { UseAccess::Write(to, width.saturating_mul(height) as u64) } else { UseAccess::WriteRows };
    parts_of(b"cuGraphAddMemsetNode", OperationKind::Fill, &[(to, access)])
}

pub(in crate::hook::cuda) fn copy_node(node: CallerPtr<Region3d>) -> Parts {
    let Some(region) = node.read() else { return opaque("a graph's copy") };
    let ends = own_vec(region.ends());
    parts_of(b"cuGraphAddMemcpyNode", OperationKind::Copy, &ends)
}

pub(in crate::hook::cuda) fn opaque(name: &str) -> Parts {
    parts_of(name.as_bytes(), OperationKind::Opaque, &[])
}

/// The parts of another graph, which becomes a child node or from which an executable graph is updated.
pub(in crate::hook::cuda) fn child_graph(graph: usize) -> Parts {
    if_complete(&graphs::parts(graph), "a child graph")
}

/// The parts of a graph, if all of them are known. Otherwise one opaque part, called `name`.
pub(super) fn if_complete(known: &[GraphPart], name: &str) -> Parts {
    let is_mark = |part: &&GraphPart| matches!(part, GraphPart::Complete(_));
    if !known.iter().any(|part| is_mark(&part)) {
        return opaque(name);
    }
    own_vec(known.iter().filter(|part| !is_mark(part)).copied())
}

/// The parts that a child node adds to its parent. A child graph that is moved to the parent adds none here, unless it
/// is opaque: [`graphs::added`] moves its nodes, so that they stay in order with its memory nodes.
fn of_child_node(node: ChildNode) -> Parts {
    let parts = child_graph(node.graph);
    let is_opaque = |part: &GraphPart| matches!(part, GraphPart::Work(OperationKind::Opaque, _));
    if node.is_moved() && !parts.iter().any(is_opaque) { OwnVec::new_in(System) } else { parts }
}

/// Reads `CUgraphNodeParams`: the type, and from byte 16 on the parameters of that type.
pub(in crate::hook::cuda) fn any_node(node: CallerPtr<c_int>) -> Parts {
    let parameters = 16;
    match node.read() {
        Some(0) => kernel_node(node.part(parameters), true),
        Some(1) => copy_node(node.part(parameters + 16)),
        Some(2) => fill_node(node.part(parameters)),
        Some(4) => node.part(parameters).read().map_or_else(|| opaque("a child graph"), of_child_node),
        // Host functions, events, semaphores, empty nodes and memory nodes use no blocks.
        Some(3 | 5..=11) => OwnVec::new_in(System),
        _ => opaque("a graph node of another kind"),
    }
}

/// Returns the callback for a call that adds a node.
pub(in crate::hook::cuda) fn added(graph: Handle, parts: impl FnOnce() -> Parts) -> impl FnOnce(c_int) {
    let parts = wanted(parts);
    move |result| {
        if result == SUCCESS {
            parts.iter().flatten().for_each(|part| graphs::add(graph.addr(), 0, Node::Part(*part)));
        }
    }
}

/// Returns the callback for a call that changes a node of an executable graph, or of any graph (`None`).
pub(in crate::hook::cuda) fn set(program: Option<Handle>, parts: impl FnOnce() -> Parts) -> impl FnOnce(c_int) {
    let parts = wanted(parts);
    move |result| {
        let Some(parts) = parts.filter(|_| result == SUCCESS) else { return };
        match program {
            Some(program) => graphs::add_to_program(program.addr(), &parts),
            None => graphs::add_to_all(&parts),
        }
    }
}

pub(in crate::hook::cuda) fn cloned(out: CallerPtr<usize>, graph: Handle) -> impl FnOnce(c_int) {
    let parts = if is_wanted() { Some(graphs::parts(graph.addr())) } else { None };
    move |result| {
        if let Some((clone, parts)) = out.written(result).zip(parts) {
            parts.iter().for_each(|part| graphs::add(clone, 0, Node::Part(*part)));
        }
    }
}
