//! Kernel stacks and what else is in a GPU's unexplained memory. (`cuda.h`, "CU_LIMIT_STACK_SIZE": the driver makes the
//! stack of each thread larger when a launch needs it, and does not make it smaller again. "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES":
//! local memory that each thread of a function uses.)

use cudarc::driver::CudaContext;
use cudarc::driver::sys;
use memtrace::analysis::{self, NeedRow};
use memtrace::export::Text;
use memtrace::report::ReportOptions;
use memtrace::{Device, DeviceView, Session, Snapshot};

use super::kernels::{self, LaunchForm};
use super::raw;
use super::support::on_gpu;
use super::truth::assert_live_equals_truth;

/// Threads that the simulated GPU can run at once.
const THREADS: u64 = 132 * 2048;
const STACKS: (&str, &str) = ("MEMTRACE_CUSIM_STACKS", "1");

/// PTX of a kernel whose threads need this many bytes of local memory.
fn text(name: &str, local: usize) -> String {
    format!(
        ".version 9.0\n.visible .entry {name}(.param .u64 a) {{ .local .align 16 .b8 __local_depot0[{local}]; ret; }}"
    )
}

fn kernel(name: &str, local: usize) -> sys::CUfunction {
    kernels::function(kernels::load(text(name, local).as_bytes()), name)
}

fn launch(function: sys::CUfunction, block: u64) {
    kernels::launch(function, LaunchForm::Plain, &[vec![block]], raw::PER_THREAD);
}

fn unexplained(snapshot: &Snapshot) -> Vec<NeedRow> {
    let device = snapshot.device(Device::Cuda(0)).unwrap();
    analysis::balance(&DeviceView::of(snapshot, device)).unwrap().unexplained
}

/// The ends of a part's range.
fn part(session: &Session, what: &str) -> (u64, u64) {
    let snapshot = session.snapshot();
    assert_live_equals_truth(&snapshot);
    let parts = unexplained(&snapshot);
    let part = parts.iter().find(|part| part.what == what);
    part.map(|part| (part.low, part.high)).unwrap_or_else(|| panic!("{what}: {parts:?}"))
}

#[test]
fn stacks_are_as_large_as_the_largest_kernel_that_was_launched() {
    on_gpu(&[STACKS, ("MEMTRACE_CUSIM_CONTEXT", "300MiB")], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_async(1 << 20, raw::PER_THREAD).unwrap();
        let exactly = |bytes| (THREADS * bytes, THREADS * bytes);
        assert_eq!(part(&session, "kernel stacks"), exactly(1024));
        launch(kernel("small", 512), block);
        assert_eq!(part(&session, "kernel stacks"), exactly(1024));
        let large = kernel("large", 4096);
        assert_eq!(part(&session, "kernel stacks"), exactly(1024), "it was not launched");
        launch(large, block);
        launch(kernel("later", 2048), block);
        assert_eq!(part(&session, "kernel stacks"), exactly(4096));
        let report = ReportOptions { device: Some(Device::Cuda(0)), ..ReportOptions::default() };
        let text = Text { report: report.clone(), ..Text::default() }.render(&session.snapshot()).unwrap();
        for expected in [
            "What may be in the unexplained 1.324 GiB",
            "kernel stacks: the context's limit per thread of the card",
            "A thread of `large` needs 4,096 bytes of local memory, launched at ",
            "cuda/kernels.rs:",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        // SAFETY: takes two numbers.
        kernels::check(unsafe { sys::cuCtxSetLimit(sys::CUlimit::CU_LIMIT_STACK_SIZE, 6000) });
        assert_eq!(part(&session, "kernel stacks"), exactly(6000), "the limit, which the program set");
        let text = Text { report, ..Text::default() }.render(&session.snapshot()).unwrap();
        assert!(!text.contains("A thread of `large`"), "it is not why stacks are that large: {text}");
    });
}

/// (`cuda.h`, `cuLaunchKernel`: `f` may be a kernel; `cuKernelGetAttribute` has its attributes on a device.)
#[test]
fn kernels_of_libraries_have_their_local_memory_too() {
    on_gpu(&[STACKS, ("MEMTRACE_CUSIM_CONTEXT", "300MiB")], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_async(1 << 20, raw::PER_THREAD).unwrap();
        let large = kernels::kernel_of_library(&text("large", 4096), "large");
        let mut bytes = 0;
        // SAFETY: the output is a local variable.
        let as_function = unsafe {
            sys::cuFuncGetAttribute(&mut bytes, sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, large)
        };
        assert_eq!(as_function, sys::CUresult::CUDA_ERROR_INVALID_HANDLE, "it is no function");
        launch(large, block);
        let snapshot = session.snapshot();
        let largest = snapshot.gpu_work.as_ref().unwrap().local.iter().map(|local| local.bytes).max();
        assert_eq!(largest, Some(4096));
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert!(gpu.uses_of(gpu.live.last().unwrap().seq).unwrap().known_last().is_some(), "its parameter is known");
    });
}

#[test]
fn without_recorded_uses_stacks_are_a_range() {
    on_gpu(&[STACKS, ("MEMTRACE_CUSIM_CONTEXT", "300MiB")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_async(100, raw::PER_THREAD).unwrap();
        launch(kernel("small", 512), block);
        assert_eq!(part(&session, "kernel stacks"), (THREADS << 10, THREADS << 11));
    });
}

#[test]
fn a_launch_that_was_refused_is_in_the_range_only() {
    on_gpu(&[STACKS, ("MEMTRACE_CUSIM_MEMORY", "1GiB"), ("MEMTRACE_CUSIM_CONTEXT", "300MiB")], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_async(100, raw::PER_THREAD).unwrap();
        let function = kernel("large", 4096);
        let mut argument = std::ptr::from_ref(&block).cast_mut().cast();
        // SAFETY: the kernel has one argument.
        let refused = unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, raw::PER_THREAD, &mut argument, std::ptr::null_mut())
        };
        assert_eq!(refused, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(part(&session, "kernel stacks"), (THREADS << 10, THREADS << 12), "the stacks are not that large");
    });
}

/// Sizes that the test draws from the ranges that `docs/fit.md` has, and of which the analysis knows nothing else.
#[test]
fn what_the_simulator_takes_is_within_every_range() {
    for seed in 1..=6_u64 {
        let draw = |place: u32, low: u64, high: u64| {
            let random =
                seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(place * 7).wrapping_mul(0xbf58_476d_1ce4_e5b9)
                    >> 20;
            low + random % (high - low)
        };
        let context = draw(1, THREADS * 922, THREADS * 1331).to_string();
        let (module, others) = (draw(2, 1, 30 << 20).to_string(), draw(3, 0, 5 << 30).to_string());
        let local = draw(4, 1, 8192).to_string();
        let variables = [
            STACKS,
            ("MEMTRACE_CUSIM_CONTEXT", context.as_str()),
            ("MEMTRACE_CUSIM_MODULE", module.as_str()),
            ("MEMTRACE_CUSIM_OTHERS", others.as_str()),
            ("TEST_LOCAL", local.as_str()),
        ];
        on_gpu(&variables, || {
            let drawn = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
            let session = memtrace::builder().uses(true).start().unwrap();
            let _context = CudaContext::new(0).unwrap();
            let block = raw::alloc_async(100, raw::PER_THREAD).unwrap();
            launch(kernel("add", drawn("TEST_LOCAL") as usize), block);
            let is_within = |what: &str, bytes: u64| {
                let (low, high) = part(&session, what);
                assert!((low..=high).contains(&bytes), "{what}: {low} to {high}, {bytes}");
            };
            is_within("kernel stacks", THREADS * drawn("TEST_LOCAL").max(1024));
            is_within("rest of the context", drawn("MEMTRACE_CUSIM_CONTEXT"));
            is_within("modules", drawn("MEMTRACE_CUSIM_MODULE"));
            is_within("what is left", drawn("MEMTRACE_CUSIM_OTHERS"));
        });
    }
}
