//! The cost of a launch, past the hooks and through them, with uses on and off. The rows only inform.
#![expect(unsafe_code, reason = "the driver's function is called by its address")]

use std::ffi::c_void;
use std::time::Instant;

use cudarc::driver::sys::CUfunction;
use memtrace::{Builder, StackContext};

use crate::gpu::{Gpu, past_hooks, through_hooks};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::{calls, overhead, uses};

type Launch = extern "C" fn(CUfunction, u32, u32, u32, u32, u32, u32, u32, raw::Stream, *mut *mut c_void, usize) -> i32;

/// Fewer than the driver queues, so that a launch does not wait for the GPU.
const LAUNCHES: usize = 500;

struct Case {
    name: &'static str,
    launch: usize,
    session: Option<fn() -> Builder>,
}

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let (past, through) = (past_hooks(c"cuLaunchKernel"), through_hooks(c"cuLaunchKernel"));
    assert!(past != 0 && through != 0, "the driver has it");
    let without_stacks = || memtrace::builder().context(StackContext::None);
    let cases = [
        Case { name: "launch: past the hooks", launch: past, session: None },
        Case { name: "launch: hooked, no recording", launch: through, session: None },
        Case { name: "launch: recording, uses off", launch: through, session: Some(without_stacks) },
        Case { name: "launch: recording, uses on", launch: through, session: Some(uses::recording) },
    ];
    let module = calls::kernels()?;
    let function = calls::function(module, c"four")?;
    let medians = overhead::medians(&cases, |case| measure(gpu, case, function));
    for (case, median) in cases.iter().zip(medians) {
        table.info(case.name, format!("{median:.0} ns a launch, {:+.0} to the first", median - medians[0]));
    }
    calls::module_unload(module)
}

/// Nanoseconds for each launch, whose four pointers are those of live blocks.
fn measure(gpu: &Gpu, case: &Case, function: CUfunction) -> f64 {
    // SAFETY: the function has this type.
    let launch = unsafe { std::mem::transmute::<usize, Launch>(case.launch) };
    let _session = case.session.map(|options| options().start().expect("no other session is under way"));
    let mut blocks = [(); 4].map(|()| raw::alloc_async(4096, LEGACY).expect("there is room"));
    let mut arguments = blocks.each_mut().map(|block| std::ptr::from_mut(block).cast::<c_void>());
    let mut launches = |count| {
        for _ in 0..count {
            let result = launch(function, 1, 1, 1, 1, 1, 1, 0, LEGACY, arguments.as_mut_ptr(), 0);
            assert_eq!(result, 0, "the kernel is launched");
        }
    };
    launches(16);
    gpu.context.synchronize().expect("the GPU works");
    let began = Instant::now();
    launches(LAUNCHES);
    let nanos = began.elapsed().as_nanos() as f64 / LAUNCHES as f64;
    blocks.iter().for_each(|block| raw::free_async(*block, LEGACY).expect("the block is live"));
    gpu.context.synchronize().expect("the GPU works");
    nanos
}
