//! What invalidates a stream capture: each row has the result codes of a call and of the end of the capture.

use cudarc::driver::sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as USED;
use cudarc::driver::sys::CUstreamCaptureMode as Mode;
use cudarc::driver::sys::CUstreamCaptureMode_enum::{
    CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
};

use super::held::{Held, Made, Program, known};
use super::{Assumption, code, row};
use crate::calls;
use crate::gpu::Gpu;
use crate::raw::{self, LEGACY, Outcome, PER_THREAD, Stream};

pub(super) const ROWS: &[Assumption] = &[
    row("capture of the default stream begins", "code 900", |_| begins(LEGACY)),
    row("capture of the thread's own stream (0x2) begins", "code 0", |_| begins(PER_THREAD)),
    row("GLOBAL capture: cuMemAllocAsync on it", "code 0, end code 0", |_| {
        during(GLOBAL, |stream| code(raw::alloc_async(1000, stream)))
    }),
    row("GLOBAL capture: cuMemFreeAsync on it of a block from before", "code 1, end code 0", |_| {
        let block = Held::pool(1000)?;
        during(GLOBAL, |stream| code(raw::free_async(block.address, stream)))
    }),
    row("GLOBAL capture: a graph with memory launched on it", "code 801, end code 0", |_| {
        let program = Program::new(1000, 0)?;
        during(GLOBAL, |stream| code(raw::launch(program.program, stream)))
    }),
    row("GLOBAL capture: cuMemAlloc_v2", "code 900, end code 901", |_| during(GLOBAL, |_| code(Held::classic(1000)))),
    row("GLOBAL capture: cuMemAlloc_v2 on another thread", "code 900, end code 901", |gpu| elsewhere(gpu, GLOBAL)),
    row("THREAD_LOCAL capture: cuMemAlloc_v2", "code 900, end code 901", |_| {
        during(THREAD_LOCAL, |_| code(Held::classic(1000)))
    }),
    row("THREAD_LOCAL capture: cuMemAlloc_v2 on another thread", "code 0, end code 0", |gpu| {
        elsewhere(gpu, THREAD_LOCAL)
    }),
    row("RELAXED capture: cuMemAlloc_v2", "code 0, end code 0", |_| during(RELAXED, |_| code(Held::classic(1000)))),
    row("GLOBAL capture: cuMemFree_v2", "code 900, end code 901", |_| {
        // If this call frees the block, the second free, after the capture, is refused.
        let block = Held::classic(1000)?;
        during(GLOBAL, |_| code(raw::free(block.address)))
    }),
    row("GLOBAL capture: cuMemAllocAsync on the default stream", "code 0, end code 0", |_| {
        during(GLOBAL, |_| code(Held::pool(1000)))
    }),
    row("the same, of a stream that waits for the default one", "code 0, end code 0", |_| {
        on(&Made::new(Made::BLOCKING)?, GLOBAL, |_| code(Held::pool(1000)))
    }),
    row("GLOBAL capture: cuMemCreate, cuMemRelease", "code 0, end code 0", |_| {
        let step = calls::granularity()?;
        during(GLOBAL, |_| code(Held::physical(step)))
    }),
    row("GLOBAL capture: cuMemGetInfo", "code 900, end code 901", |_| during(GLOBAL, |_| code(calls::memory()))),
    row("GLOBAL capture: cuMemPoolGetAttribute", "code 900, end code 901", |gpu| {
        during(GLOBAL, |_| code(calls::pool_attribute(gpu.pool, USED)))
    }),
    row("GLOBAL capture: cuMemPoolTrimTo", "code 900, end code 901", |gpu| {
        during(GLOBAL, |_| code(raw::pool_trim(gpu.pool, 0)))
    }),
    row("GLOBAL capture: cuDeviceGetGraphMemAttribute", "code 0, end code 0", |_| {
        during(GLOBAL, |_| code(calls::graph_memory(0)))
    }),
    row("GLOBAL capture: cuPointerGetAttribute", "code 0, end code 0", |_| {
        let block = Held::pool(1000)?;
        during(GLOBAL, |_| known(block.address))
    }),
    row("GLOBAL capture: cuCtxSynchronize", "code 900, end code 901", |_| {
        during(GLOBAL, |_| code(calls::synchronise_all()))
    }),
    row("GLOBAL capture: cuStreamSynchronize of it", "code 900, end code 0", |_| {
        during(GLOBAL, |stream| code(raw::synchronise(stream)))
    }),
];

fn begins(stream: Stream) -> Outcome<String> {
    let begun = raw::begin_capture(stream, RELAXED);
    if begun.is_ok() {
        end(stream)?;
    }
    Ok(code(begun))
}

/// Runs an action while a new stream is captured.
fn during(mode: Mode, act: impl FnOnce(Stream) -> String) -> Outcome<String> {
    on(&Made::new(Made::APART)?, mode, act)
}

fn on(stream: &Made, mode: Mode, act: impl FnOnce(Stream) -> String) -> Outcome<String> {
    raw::begin_capture(stream.0, mode)?;
    let answer = act(stream.0);
    Ok(format!("{answer}, end {}", code(end(stream.0))))
}

/// The captured graph is not needed.
fn end(stream: Stream) -> Outcome<()> {
    raw::end_capture(stream).and_then(raw::graph_destroy)
}

fn elsewhere(gpu: &Gpu, mode: Mode) -> Outcome<String> {
    let context = &gpu.context;
    let allocate = || {
        context.bind_to_thread().expect("the primary context is a live one");
        code(Held::classic(1000))
    };
    during(mode, |_| std::thread::scope(|scope| scope.spawn(allocate).join()).expect("it does not panic"))
}
