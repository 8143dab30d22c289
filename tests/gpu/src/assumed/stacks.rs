//! What CUDA takes for itself: contexts, stacks of kernels, executable graphs, cuBLAS. Contexts and stacks are those of a
//! second context, whose end gives the memory back.

use cudarc::driver::sys::{CUgraph, CUmodule, CUresult, CUstreamCaptureMode};

use super::held::Made;
use super::{Assumption, row, size, takes};
use crate::blas::Library;
use crate::calls;
use crate::gpu::is_simulated;
use crate::raw::{self, LEGACY, Outcome};

const KIB: u64 = 1 << 10;

pub(super) const ROWS: &[Assumption] = &[
    row("a second context takes, besides stacks of its limit", "0 MiB", |_| {
        let (bytes, context) = takes(|| raw::context_create(std::ptr::null_mut(), 0, 0))?;
        let stacks = calls::stack_limit().and_then(|limit| Ok(limit * calls::threads()?));
        raw::context_destroy(context)?;
        Ok(size(bytes.saturating_sub(stacks?)))
    }),
    row("stacks: the limit of a new context", "1024 bytes", |_| in_another(|| calls::stack_limit().map(size))),
    row("stacks: a limit of 5 KiB instead takes, for each thread", "4096 bytes", |_| {
        in_another(|| {
            calls::set_stack_limit(KIB as usize)?;
            takes_for_each_thread(|| calls::set_stack_limit(5 * KIB as usize))
        })
    }),
    row("stacks: a launch that needs 8 KiB takes, for each thread", "7168 bytes", |_| {
        deep(|module| takes_for_each_thread(|| launch(module)))
    }),
    row("stacks: the limit after that launch", "8192 bytes", |_| {
        deep(|module| launch(module).and_then(|()| calls::stack_limit()).map(size))
    }),
    row("stacks: after its module's end they take, for each thread", "7168 bytes", |_| {
        in_another(|| {
            takes_for_each_thread(|| {
                let module = calls::deep_kernel()?;
                launch(module)?;
                calls::module_unload(module)
            })
        })
    }),
    row("an executable graph of 1000 kernels takes", "0 MiB", |_| {
        let module = calls::kernels()?;
        let graph = captured(module)?;
        let (bytes, program) = takes(|| {
            let program = raw::instantiate(graph, 0)?;
            calls::upload(program, LEGACY).and_then(|()| calls::synchronise_all()).map(|()| program)
        })?;
        raw::program_destroy(program)?;
        raw::graph_destroy(graph)?;
        calls::module_unload(module)?;
        Ok(size(bytes))
    }),
    row("a handle of cuBLAS takes", "0 MiB", |_| {
        takes(|| Library::cublas().map_err(|_| CUresult::CUDA_ERROR_NOT_SUPPORTED)).map(|(bytes, _)| size(bytes))
    }),
];

/// A graph of 1000 launches.
fn captured(module: CUmodule) -> Outcome<CUgraph> {
    let (function, other) = (calls::function(module, c"four")?, Made::new(Made::APART)?);
    raw::begin_capture(other.0, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let mut pointers = [0_u64; 4];
    for _ in 0..1000 {
        let mut arguments = pointers.each_mut().map(|pointer| std::ptr::from_mut(pointer).cast());
        calls::launch_kernel(function, &mut arguments, other.0)?;
    }
    raw::end_capture(other.0)
}

/// Runs an action in a second context, which is current meanwhile.
fn in_another(act: impl FnOnce() -> Outcome<String>) -> Outcome<String> {
    let context = raw::context_create(std::ptr::null_mut(), 0, 0)?;
    let answer = act();
    raw::context_destroy(context)?;
    answer
}

/// The same with a module whose kernel needs 8 KiB of local memory.
fn deep(act: impl FnOnce(CUmodule) -> Outcome<String>) -> Outcome<String> {
    in_another(|| {
        let module = calls::deep_kernel()?;
        let answer = act(module);
        calls::module_unload(module)?;
        answer
    })
}

fn launch(module: CUmodule) -> Outcome<()> {
    let (function, mut argument) = (calls::function(module, c"deep")?, 0_u64);
    calls::launch_kernel(function, &mut [(&raw mut argument).cast()], LEGACY)?;
    calls::synchronise_all()
}

/// Not supported on a simulated GPU whose stacks take nothing.
fn takes_for_each_thread(act: impl FnOnce() -> Outcome<()>) -> Outcome<String> {
    let (bytes, ()) = takes(act)?;
    if bytes == 0 && is_simulated() {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    } else {
        Ok(size(bytes / calls::threads()?))
    }
}
