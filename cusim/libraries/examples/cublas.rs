//! A stand-in for cuBLAS (`libcublas.so.13`): handles, and products that leave their results as they are.
//!
//! With `MEMTRACE_CUSIM_CUBLAS_WORKSPACE=BYTES` each handle allocates that much device memory with
//! `cuMemAlloc`, as the real one allocates its workspace.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use memtrace_cusim_libraries::{done, driver, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublas.rs"));

const NOT_SUPPORTED: u32 = 15;
const ALLOCATION_FAILED: u32 = 3;
const INVALID_VALUE: u32 = 7;

/// Handles of workspaces, by address. A handle without a workspace is this.
const NO_WORKSPACE: u64 = 1;

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(handle: *mut u64) -> u32 {
    let Some(handle) = NonNull::new(handle) else { return INVALID_VALUE };
    let workspace = match workspace_bytes() {
        0 => Some(NO_WORKSPACE),
        bytes => allocate(bytes),
    };
    let Some(workspace) = workspace else { return ALLOCATION_FAILED };
    // SAFETY: the caller passes a pointer to a handle that it owns.
    unsafe { handle.write(workspace) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: u64) -> u32 {
    if handle != NO_WORKSPACE
        && let Some(function) = driver(c"cuMemFree_v2")
    {
        // SAFETY: that is the function's type.
        let free = unsafe { std::mem::transmute::<NonNull<libc::c_void>, extern "C" fn(u64) -> u32>(function) };
        free(handle);
    }
    0
}

fn allocate(bytes: usize) -> Option<u64> {
    let function = driver(c"cuMemAlloc_v2")?;
    type Allocate = extern "C" fn(*mut u64, usize) -> u32;
    // SAFETY: that is the function's type.
    let allocate = unsafe { std::mem::transmute::<NonNull<libc::c_void>, Allocate>(function) };
    let mut address = 0;
    (allocate(&mut address, bytes) == 0).then_some(address)
}

fn workspace_bytes() -> usize {
    // SAFETY: the name ends with a zero byte.
    let text = unsafe { libc::getenv(c"MEMTRACE_CUSIM_CUBLAS_WORKSPACE".as_ptr()) };
    if text.is_null() {
        return 0;
    }
    // SAFETY: `getenv` gives text that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether results and factors are on the host, which they are at first: of the handle that was asked last.
static POINTER_MODE: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(_handle: u64, mode: u32) -> u32 {
    POINTER_MODE.store(mode, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetPointerMode_v2(_handle: u64, mode: *mut u32) -> u32 {
    let Some(mode) = NonNull::new(mode) else { return INVALID_VALUE };
    // SAFETY: the caller passes a pointer to a value that it owns.
    unsafe { mode.write(POINTER_MODE.load(Ordering::Relaxed)) };
    0
}

done! {
    fn cublasSetStream_v2;
    fn cublasSetWorkspace_v2;
    fn cublasSetMathMode;
    fn cublasSgemm_v2;
    fn cublasDgemm_v2;
    fn cublasHgemm;
    fn cublasGemmEx;
    fn cublasSgemmStridedBatched;
    fn cublasDgemmStridedBatched;
    fn cublasHgemmStridedBatched;
    fn cublasGemmStridedBatchedEx;
    fn cublasGemmGroupedBatchedEx;
    fn cublasSgemv_v2;
    fn cublasDgemv_v2;
    fn cublasSasum_v2;
    fn cublasDasum_v2;
}
