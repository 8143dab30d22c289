//! Memory of CUDA graphs.

use super::held::{Program, known};
use super::{Assumption, code, row, size};
use crate::calls;
use crate::gpu::Gpu;
use crate::raw::{self, LEGACY, Outcome};

const MIB: u64 = 1 << 20;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;

pub(super) const ROWS: &[Assumption] = &[
    row("graph: RESERVED when instantiated, uploaded, launched", "0, 0, 2 MiB", stages),
    row("graph: USED by a block of 1000 bytes", "1024 bytes", |_| {
        let _program = Program::launched(1000, 0)?;
        Ok(size(calls::graph_memory(0)?.0))
    }),
    row("graph: RESERVED for a block of 3 MiB", "4 MiB", |_| {
        let _program = Program::launched(3 * MIB, 0)?;
        Ok(size(calls::graph_memory(0)?.1))
    }),
    row("graph: RESERVED when all was freed and synchronised", "2 MiB", |_| {
        freed()?;
        Ok(size(calls::graph_memory(0)?.1))
    }),
    row("graph: RESERVED after cuDeviceGraphMemTrim", "0 MiB", |_| {
        freed()?;
        calls::trim_graphs(0)?;
        Ok(size(calls::graph_memory(0)?.1))
    }),
    row("graph: the default pool's USED with a graph's block", "0 MiB", |gpu| {
        let _program = Program::launched(1000, 0)?;
        Ok(size(gpu.used()))
    }),
    row("graph: launched again while its block is live", "code 1", |_| {
        Ok(code(raw::launch(Program::launched(1000, 0)?.program, LEGACY)))
    }),
    row("graph: USED after two launches that free first", "1024 bytes", |_| {
        let program = Program::launched(1000, AUTO_FREE)?;
        raw::launch(program.program, LEGACY)?;
        Ok(size(calls::graph_memory(0)?.0))
    }),
    row("graph: instantiated twice at a time", "code 1", |_| {
        let program = Program::new(1000, 0)?;
        let second = raw::instantiate(program.graph, 0);
        second.into_iter().try_for_each(raw::program_destroy)?;
        Ok(code(second))
    }),
    row("graph: cloned", "code 1", |_| {
        let clone = calls::clone_graph(Program::new(1000, 0)?.graph);
        clone.into_iter().try_for_each(raw::graph_destroy)?;
        Ok(code(clone))
    }),
    row("graph: addresses of a block and of one made when it was freed", "different", one_after_another),
    row("graph: a second node that frees the same block", "code 1", |_| {
        let graph = raw::graph_create(0)?;
        let (node, address) = calls::alloc_node(graph, 1000, &[])?;
        let free = calls::free_node(graph, address, &[node])?;
        let again = code(calls::free_node(graph, address, &[free]));
        raw::graph_destroy(graph)?;
        Ok(again)
    }),
    row("graph: destroyed with its program; its block is", "code 0", destroyed),
    row("graph: its block freed by cuMemFree_v2", "code 0", |_| {
        let program = Program::launched(1000, 0)?;
        raw::synchronise(LEGACY)?;
        Ok(code(raw::free(program.address)))
    }),
];

/// RESERVED of the device's graphs at each stage.
fn stages(_gpu: &Gpu) -> Outcome<String> {
    let program = Program::new(1000, 0)?;
    let reserved = || calls::graph_memory(0).map(|(_, reserved)| reserved);
    let instantiated = reserved()?;
    calls::upload(program.program, LEGACY)?;
    raw::synchronise(LEGACY)?;
    let uploaded = reserved()?;
    raw::launch(program.program, LEGACY)?;
    let words = [instantiated, uploaded].map(|bytes| if bytes == 0 { "0".to_owned() } else { size(bytes) });
    Ok(format!("{}, {}, {}", words[0], words[1], size(reserved()?)))
}

fn freed() -> Outcome<()> {
    let program = Program::launched(1000, 0)?;
    raw::free_async(program.address, LEGACY)?;
    calls::synchronise_all()
}

fn one_after_another(_gpu: &Gpu) -> Outcome<String> {
    let graph = raw::graph_create(0)?;
    let (node, first) = calls::alloc_node(graph, 1000, &[])?;
    let free = calls::free_node(graph, first, &[node])?;
    let second = calls::alloc_node(graph, 1000, &[free]);
    raw::graph_destroy(graph)?;
    Ok(if first == second?.1 { "the same" } else { "different" }.to_owned())
}

/// The result code of a query for the block.
fn destroyed(_gpu: &Gpu) -> Outcome<String> {
    let program = Program::launched(1000, 0)?;
    let (graph, executable, address) = (program.graph, program.program, program.address);
    std::mem::forget(program);
    crate::graphs::done(graph, executable, LEGACY)?;
    let answer = known(address);
    raw::free_async(address, LEGACY)?;
    Ok(answer)
}
