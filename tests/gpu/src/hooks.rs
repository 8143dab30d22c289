//! Whether each hook fires: one row for each driver function, with a recording of its own.
#![expect(unsafe_code, reason = "functions that the driver was asked for are called in C")]

use std::ffi::CStr;

use cudarc::driver::sys::CUresult;
use memtrace::Device;

use crate::gpu::{GPU, Gpu, known, past_hooks};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch::{self, came_and_went, watch};

/// All rows except those about the end of contexts.
pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    of_streams(gpu, table);
    of_threads(gpu, table);
    classic(table);
    pinned(table);
    Ok(())
}

fn of_streams(gpu: &Gpu, table: &mut Table) {
    watch(table, "cuMemAllocAsync", || {
        raw::free_async(raw::alloc_async(1000, LEGACY)?, LEGACY)?;
        came_and_went(GPU, 1000)
    });
    watch(table, "cuMemAllocFromPoolAsync", || {
        raw::free_async(raw::alloc_from_pool(1100, gpu.pool, LEGACY)?, LEGACY)?;
        came_and_went(GPU, 1100)
    });
    watch(table, "cuMemFree_v2 of a pool's block", || {
        raw::free(raw::alloc_async(1200, LEGACY)?)?;
        came_and_went(GPU, 1200)
    });
}

/// The variants for a per-thread default stream, which programs get from `cuGetProcAddress`.
fn of_threads(gpu: &Gpu, table: &mut Table) {
    type Alloc = extern "C" fn(*mut u64, usize, usize) -> CUresult;
    type FromPool = extern "C" fn(*mut u64, usize, usize, usize) -> CUresult;
    type Free = extern "C" fn(u64, usize) -> CUresult;
    let freed = |address| {
        // SAFETY: the function has this type.
        let free = unsafe { std::mem::transmute::<usize, Free>(per_thread(c"cuMemFreeAsync")) };
        free(address, 0)
    };
    watch(table, "cuMemAllocAsync_ptsz, looked up", || {
        // SAFETY: the function has this type.
        let alloc = unsafe { std::mem::transmute::<usize, Alloc>(per_thread(c"cuMemAllocAsync")) };
        let mut address = 0;
        check(alloc(&mut address, 1300, 0))?;
        check(freed(address))?;
        came_and_went(GPU, 1300)
    });
    watch(table, "cuMemAllocFromPoolAsync_ptsz, looked up", || {
        // SAFETY: the function has this type.
        let alloc = unsafe { std::mem::transmute::<usize, FromPool>(per_thread(c"cuMemAllocFromPoolAsync")) };
        let mut address = 0;
        check(alloc(&mut address, 1400, gpu.pool.expose_provenance(), 0))?;
        check(freed(address))?;
        came_and_went(GPU, 1400)
    });
}

fn per_thread(name: &CStr) -> usize {
    const PER_THREAD_DEFAULT_STREAM: u64 = 2;
    raw::get_proc_address(name, 12000, PER_THREAD_DEFAULT_STREAM)
}

fn check(result: CUresult) -> Outcome<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

fn classic(table: &mut Table) {
    watch(table, "cuMemAlloc_v2, cuMemFree_v2", || {
        raw::free(raw::alloc(1500)?)?;
        came_and_went(GPU, 1500)
    });
    watch(table, "cuMemAllocPitch_v2", || {
        let (address, pitch) = raw::alloc_pitch(100, 7)?;
        raw::free(address)?;
        came_and_went(GPU, pitch as i64 * 7)
    });
    watch(table, "cuMemAllocManaged", || {
        raw::free(raw::managed(1600, ATTACH_GLOBAL)?)?;
        came_and_went(Device::Managed, 1600)
    });
}

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;

fn pinned(table: &mut Table) {
    watch(table, "cuMemHostAlloc, cuMemFreeHost", || {
        raw::host_free(raw::host_alloc(1700, 0)?)?;
        came_and_went(Device::Pinned, 1700)
    });
    watch(table, "cuMemAllocHost_v2", || {
        raw::host_free(raw::host_alloc_plain(1800)?)?;
        came_and_went(Device::Pinned, 1800)
    });
    watch(table, "cuMemHostRegister_v2, …Unregister", || {
        let mut memory = vec![0u8; 8192];
        let pointer = memory.as_mut_ptr().cast();
        raw::host_register(pointer, 8192, 0)?;
        raw::host_unregister(pointer)?;
        came_and_went(Device::Pinned, 8192)
    });
}

/// The end of a context frees its memory.
pub(crate) fn ended_context(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    const NAME: &str = "cuCtxDestroy_v2 frees in bulk";
    if past_hooks(c"cuCtxCreate_v4") == 0 {
        table.info(NAME, "this driver has no cuCtxCreate_v4: not tried");
        return Ok(());
    }
    let mut asked = String::new();
    watch(table, NAME, || {
        let other = raw::context_create(std::ptr::null_mut(), 0, 0)?;
        let classic = raw::alloc(1900)?;
        let managed = raw::managed(2000, ATTACH_GLOBAL)?;
        raw::context_destroy(other)?;
        asked = format!("a classic block: {}; a managed one: {}", known(classic), known(managed));
        Ok(vec![(GPU, 1900), (GPU, -1900), (Device::Managed, 2000), (Device::Managed, -2000)])
    });
    table.info("the driver, asked for what ended", asked);
    survivor(gpu, table)
}

/// Whether the end of a context frees a block of the device's pool that was allocated in it. Whatever the driver does,
/// the ledger must agree.
fn survivor(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let _session = watch::recording();
    gpu.context.bind_to_thread().expect("the primary context is a live one");
    let other = raw::context_create(std::ptr::null_mut(), 0, 0)?;
    let block = raw::alloc_async(2200, LEGACY)?;
    let destroyed = raw::context_destroy(other);
    gpu.context.bind_to_thread().expect("the primary context is a live one");
    let known = known(block);
    let left = memtrace::stats(GPU).allocated_bytes.current;
    let freed = raw::free_async(block, LEGACY);
    let detail = format!("{destroyed:?}; {known}; ledger {left} of 2200 bytes; freed afterwards: {freed:?}");
    table.info("a pool's block whose context ended", detail);
    Ok(())
}

/// Must be called last, because nothing on the device is usable afterwards.
pub(crate) fn reset_device(table: &mut Table) -> Outcome<()> {
    let mut asked = String::new();
    watch(table, "cuDevicePrimaryCtxReset_v2 frees in bulk", || {
        let block = raw::alloc(2100)?;
        raw::primary_reset(0)?;
        asked = format!("a classic block: {}", known(block));
        came_and_went(GPU, 2100)
    });
    table.info("the driver, asked for what ended", asked);
    Ok(())
}
