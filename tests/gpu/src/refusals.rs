//! Refused calls, and functions that memtrace does not hook.

use std::ffi::CStr;
use std::path::PathBuf;

use cudarc::driver::sys::CUresult;
use memtrace::{Session, open, stats};

use crate::gpu::{GPU, Gpu, past_hooks, through_hooks};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch;

/// More than the device has.
pub(crate) fn out_of_memory(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    let path = std::env::temp_dir().join(format!("gpu-check-{}.memtrace", std::process::id()));
    let builder = memtrace::builder().dump_to(path.to_string_lossy()).dump_on_oom(true);
    let session = builder.start().expect("no other session is under way");
    let held = raw::alloc_async(1 << 20, LEGACY)?;
    let (free, _) = gpu.context.mem_get_info().expect("the GPU works");
    let before = live();
    let codes = [raw::alloc_async(free + (1 << 30), LEGACY), raw::alloc(free + (1 << 30))];
    let refused = codes == [Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY); 2];
    let detail = format!(
        "stream-ordered: {}; classic: {}; ledger {before} before, {} after",
        code(codes[0]),
        code(codes[1]),
        live()
    );
    table.check("out of memory: free + 1 GiB", refused && live() == before, detail);
    noted(&session, free as u64, table);
    drop(session);
    dumped(table, path);
    raw::free_async(held, LEGACY)
}

/// Checks the recording of two refusals of the same size.
fn noted(session: &Session, free: u64, table: &mut Table) {
    /// A tolerance for memory that the driver releases, or that other processes take, meanwhile.
    const ABOUT: u64 = 64 << 20;
    let snapshot = session.snapshot();
    let device = snapshot.device(GPU).expect("it was recorded");
    let (counts, events) = ((device.stats.num_ooms, device.stats.num_alloc_retries), &device.ooms);
    let frees: Vec<u64> = events.iter().map(|event| event.device_free.unwrap_or(0)).collect();
    let sizes: Vec<u64> = events.iter().map(|event| event.size).collect();
    let near = frees.iter().all(|found| found.abs_diff(free) <= ABOUT);
    let right = counts == (2, 1) && near && sizes == [free + (1 << 30); 2];
    let detail = format!(
        "num_ooms {}, num_alloc_retries {}, events {}\ndevice_free {frees:?}, cuMemGetInfo before them {free}",
        counts.0,
        counts.1,
        events.len()
    );
    table.check("out of memory: events and retries", right, detail);
}

/// The capture file that was written when the allocation was refused.
fn dumped(table: &mut Table, path: PathBuf) {
    const NAME: &str = "out of memory: capture written";
    match open(&path) {
        Ok(capture) => {
            let gpu = capture.device(GPU);
            let (live, pool) = gpu.map_or((0, None), |gpu| (gpu.live.len(), gpu.pool));
            let pool = pool.map_or("the pool was not asked".to_owned(), |pool| format!("pool USED {}", pool.used));
            table.check(NAME, live == 1, format!("{live} live block in it, {pool}"));
        }
        Err(error) => table.check(NAME, false, error.to_string()),
    }
    // A file that cannot be removed stays in the folder for temporary files.
    let _ = std::fs::remove_file(path);
}

fn code(outcome: Outcome<u64>) -> String {
    outcome.map_or_else(|code| format!("code {}", code as u32), |_| "granted".to_owned())
}

fn live() -> u64 {
    stats(GPU).allocated_bytes.current
}

/// Failing frees, and whether the ledger agrees.
pub(crate) fn frees(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    double_free(&session, table)?;
    middle_of_block(&session, table)?;
    without_context(gpu, &session, table)
}

fn refused(session: &Session) -> u64 {
    session.snapshot().health.refused_frees
}

fn double_free(session: &Session, table: &mut Table) -> Outcome<()> {
    let block = raw::alloc(1000)?;
    raw::free(block)?;
    let before = refused(session);
    let again = raw::free(block);
    let right = again.is_err() && live() == 0 && refused(session) == before + 1;
    table.check("a block freed twice", right, format!("{again:?}; ledger {} bytes", live()));
    Ok(())
}

fn middle_of_block(session: &Session, table: &mut Table) -> Outcome<()> {
    let block = raw::alloc(1000)?;
    let before = refused(session);
    let middle = raw::free(block + 256);
    let right = middle.is_err() && live() == 1000 && refused(session) == before + 1;
    table.check("a free of a block's middle", right, format!("{middle:?}; ledger {} bytes", live()));
    raw::free(block)
}

/// A free on a thread without a current context. Whatever the driver does, the ledger must agree.
fn without_context(gpu: &Gpu, session: &Session, table: &mut Table) -> Outcome<()> {
    let block = raw::alloc_async(1000, LEGACY)?;
    gpu.context.synchronize().expect("the GPU works");
    let before = refused(session);
    let freed = std::thread::spawn(move || raw::free_async(block, LEGACY)).join().expect("it does not panic");
    let expected = if freed.is_ok() { (0, before) } else { (1000, before + 1) };
    let right = (live(), refused(session)) == expected;
    table.check("a free on a thread without a context", right, format!("{freed:?}; ledger {} bytes", live()));
    if freed.is_err() { raw::free_async(block, LEGACY) } else { Ok(()) }
}

/// Functions older than `_v2`, with other arguments.
const WITH_OTHER_ARGUMENTS: [&CStr; 5] =
    [c"cuMemAlloc", c"cuMemAllocPitch", c"cuMemFree", c"cuMemAllocHost", c"cuArrayCreate"];

/// Functions older than `_v2`, with the same arguments.
const WITH_THE_SAME_ARGUMENTS: [&CStr; 5] = [
    c"cuMemHostRegister",
    c"cuCtxDestroy",
    c"cuDevicePrimaryCtxRelease",
    c"cuDevicePrimaryCtxReset",
    c"cuStreamDestroy",
];

/// A look-up of an old function finds the driver's own if it has other arguments, and else the hook, as a look-up of a newer one does.
pub(crate) fn legacy_functions(table: &mut Table) {
    let are_replaced = [(&WITH_OTHER_ARGUMENTS, false), (&WITH_THE_SAME_ARGUMENTS, true)];
    let names = ["functions without _v2: the driver's own", "older forms of functions: memtrace's"];
    for ((functions, is_replaced), name) in are_replaced.into_iter().zip(names) {
        let there: Vec<&CStr> = functions.iter().copied().filter(|function| past_hooks(function) != 0).collect();
        let is_wrong = |function: &&&CStr| (through_hooks(function) != past_hooks(function)) != is_replaced;
        let wrong: Vec<_> = there.iter().filter(is_wrong).collect();
        let detail = format!("{} of {} are in this driver", there.len(), functions.len());
        match (there.len(), wrong.len()) {
            (0, _) => table.info(name, detail),
            (_, 0) => table.check(name, true, detail),
            _ => table.check(name, false, format!("{detail}; wrong: {wrong:?}")),
        }
    }
    let replaced = through_hooks(c"cuMemAlloc_v2") != past_hooks(c"cuMemAlloc_v2");
    table.check("cuMemAlloc_v2: memtrace's", replaced, "asked for by name");
}
