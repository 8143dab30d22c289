//! CUDA streams that are captured into graphs.
#![expect(unsafe_code, reason = "the driver is called in C")]

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode_enum, CUstreamCaptureStatus_enum as Status};
use memtrace::{Session, stats};

use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome, Stream};
use crate::table::Table;
use crate::watch;

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    let stream = gpu.context.new_stream().expect("there is room for a stream");
    snapshot_meanwhile(&session, stream.cu_stream(), table)?;
    alloc_meanwhile(stream.cu_stream(), table)
}

fn begin(stream: Stream) -> Outcome<()> {
    raw::begin_capture(stream, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)
}

/// Snapshots on this thread and on another one, while a stream is captured in the strictest mode.
fn snapshot_meanwhile(session: &Session, stream: Stream, table: &mut Table) -> Outcome<()> {
    let block = raw::alloc_async(1000, LEGACY)?;
    begin(stream)?;
    let asked = |session: &Session| session.snapshot().device(GPU).is_some_and(|gpu| gpu.pool.is_some());
    let here = asked(session);
    let there = std::thread::scope(|scope| scope.spawn(|| asked(session)).join()).expect("it does not panic");
    let status = status(stream);
    let ended = end(stream);
    let valid = status == Ok(Status::CU_STREAM_CAPTURE_STATUS_ACTIVE) && ended.is_ok();
    let detail = format!("{status:?}, end {ended:?}; pool asked here {here}, on another thread {there}");
    table.check("snapshots during a GLOBAL capture", valid && here && there, detail);
    raw::free_async(block, LEGACY)
}

/// An allocation that becomes a node of a graph.
fn alloc_meanwhile(stream: Stream, table: &mut Table) -> Outcome<()> {
    let before = live();
    begin(stream)?;
    let result = raw::alloc_async(3000, stream);
    let captured = live() - before;
    let ended = end(stream);
    let detail = format!(
        "{}; ledger +{captured}; capture's end {ended:?}; graph destroyed, ledger +{}",
        result.map_or_else(|code| format!("{code:?}"), |address| format!("granted at {address:#x}")),
        live() - before
    );
    table.info("an allocation under capture", detail);
    Ok(())
}

fn live() -> u64 {
    stats(GPU).allocated_bytes.current
}

fn status(stream: Stream) -> Outcome<Status> {
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the output is a local variable.
    let result = unsafe { sys::cuStreamIsCapturing(stream, &mut status) };
    if result == CUresult::CUDA_SUCCESS { Ok(status) } else { Err(result) }
}

/// Ends a stream capture and destroys its graph.
fn end(stream: Stream) -> Outcome<()> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the output is a local variable.
    let result = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
    if result != CUresult::CUDA_SUCCESS {
        return Err(result);
    }
    // SAFETY: the call above created the graph, and nothing else uses it.
    let result = unsafe { sys::cuGraphDestroy(graph) };
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}
