//! Graphs that allocate: from stream captures or built node by node, launched once and repeatedly.

use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUresult};

use crate::calls;
use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome, Stream};
use crate::table::Table;
use crate::watch::{Did, watch};

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let stream = gpu.context.new_stream().expect("there is room for a stream");
    let stream = stream.cu_stream();
    watch(table, "graph captured, launched twice", || captured(stream));
    watch(table, "graph by hand, freed by itself", || by_hand(stream));
    watch(table, "graph that frees at its next launch", || frees_first(stream));
    watch(table, "graph's memory freed by another graph", || freed_by_another(stream));
    watch(table, "graph's memory freed by cuMemFree_v2", || freed_at_once(stream));
    let trimmed = trimmed(stream)?;
    table.info("graph memory (USED, RESERVED)", trimmed);
    Ok(())
}

/// `cuMemFreeAsync` frees its block after each launch.
fn captured(stream: Stream) -> Outcome<Did> {
    raw::begin_capture(stream, RELAXED)?;
    let inner = raw::alloc_async(4100, stream)?;
    let result = raw::alloc_async(4200, stream)?;
    raw::free_async(inner, stream)?;
    let (graph, program) = ready(raw::end_capture(stream)?, 0)?;
    for _ in 0..2 {
        raw::launch(program, stream)?;
        raw::free_async(result, stream)?;
    }
    done(graph, program, stream)?;
    Ok([4100, 4200, -4100, -4200].repeat(2).into_iter().map(|bytes| (GPU, bytes)).collect())
}

fn by_hand(stream: Stream) -> Outcome<Did> {
    let graph = raw::graph_create(0)?;
    let (node, address) = calls::alloc_node(graph, 4300, &[])?;
    calls::free_node(graph, address, &[node])?;
    let (graph, program) = ready(graph, 0)?;
    raw::launch(program, stream)?;
    raw::launch(program, stream)?;
    done(graph, program, stream)?;
    Ok([4300, -4300].repeat(2).into_iter().map(|bytes| (GPU, bytes)).collect())
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;

fn frees_first(stream: Stream) -> Outcome<Did> {
    let graph = raw::graph_create(0)?;
    let (_, address) = calls::alloc_node(graph, 4400, &[])?;
    let (graph, program) = ready(graph, AUTO_FREE)?;
    (0..3).try_for_each(|_| raw::launch(program, stream))?;
    raw::free_async(address, stream)?;
    done(graph, program, stream)?;
    Ok([4400, -4400].repeat(3).into_iter().map(|bytes| (GPU, bytes)).collect())
}

fn freed_by_another(stream: Stream) -> Outcome<Did> {
    let (allocates, address) = holding(4500, stream)?;
    let graph = raw::graph_create(0)?;
    calls::free_node(graph, address, &[])?;
    let frees = ready(graph, 0)?;
    raw::launch(frees.1, stream)?;
    done(frees.0, frees.1, stream)?;
    done(allocates.0, allocates.1, stream)?;
    Ok(vec![(GPU, 4500), (GPU, -4500)])
}

fn freed_at_once(stream: Stream) -> Outcome<Did> {
    let ((graph, program), address) = holding(4600, stream)?;
    raw::synchronise(stream)?;
    raw::free(address)?;
    done(graph, program, stream)?;
    Ok(vec![(GPU, 4600), (GPU, -4600)])
}

type Ready = (CUgraph, CUgraphExec);

/// Launches a graph with one allocation. Returns what must be destroyed, and the block's address.
pub(crate) fn holding(size: u64, stream: Stream) -> Outcome<(Ready, u64)> {
    let graph = raw::graph_create(0)?;
    let (_, address) = calls::alloc_node(graph, size, &[])?;
    let (graph, program) = ready(graph, 0)?;
    raw::launch(program, stream)?;
    Ok(((graph, program), address))
}

pub(crate) fn ready(graph: CUgraph, flags: u64) -> Outcome<Ready> {
    Ok((graph, raw::instantiate(graph, flags)?))
}

pub(crate) fn done(graph: CUgraph, program: CUgraphExec, stream: Stream) -> Outcome<()> {
    raw::synchronise(stream)?;
    raw::program_destroy(program)?;
    raw::graph_destroy(graph)
}

/// The driver's counters of memory for graphs, from launch to trim.
fn trimmed(stream: Stream) -> Outcome<String> {
    let before = calls::graph_memory(0)?;
    let ((graph, program), address) = match holding(5 << 20, stream) {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) => return Ok("not supported (code 801)".to_owned()),
        holding => holding?,
    };
    let launched = calls::graph_memory(0)?;
    raw::free_async(address, LEGACY)?;
    calls::synchronise_all()?;
    let freed = calls::graph_memory(0)?;
    done(graph, program, stream)?;
    calls::trim_graphs(0)?;
    let trimmed = calls::graph_memory(0)?;
    Ok(format!("before {before:?}, launched with 5 MiB {launched:?},\nfreed {freed:?}, trimmed {trimmed:?}"))
}
