//! Stand-in for cuBLAS (`libcublas.so.13`): handles, and matrix products that leave their results unchanged.
//!
//! With `MEMTRACE_CUSIM_CUBLAS_WORKSPACE=BYTES` each handle allocates that much device memory with `cuMemAlloc`, as the
//! real library allocates its workspace.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

use memtrace_cusim_libraries::{OutArg, done, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublas.rs"));

const NOT_SUPPORTED: u32 = 15;
const ALLOCATION_FAILED: u32 = 3;
const INVALID_VALUE: u32 = 7;

/// A handle is the address of its workspace, or this without one.
const NO_WORKSPACE: u64 = 1;

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(handle: OutArg<u64>) -> u32 {
    let workspace = match workspace_bytes() {
        0 => Some(NO_WORKSPACE),
        bytes => allocate(bytes),
    };
    workspace.map_or(ALLOCATION_FAILED, |workspace| handle.set(workspace, INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: u64) -> u32 {
    if handle != NO_WORKSPACE
        && let Some(free) = driver_function!(c"cuMemFree_v2": fn(u64))
    {
        free(handle);
    }
    0
}

fn allocate(bytes: usize) -> Option<u64> {
    let allocate = driver_function!(c"cuMemAlloc_v2": fn(*mut u64, usize))?;
    let mut address = 0;
    (allocate(&mut address, bytes) == 0).then_some(address)
}

fn workspace_bytes() -> usize {
    // SAFETY: the name ends with a zero byte.
    let text = unsafe { libc::getenv(c"MEMTRACE_CUSIM_CUBLAS_WORKSPACE".as_ptr()) };
    if text.is_null() {
        return 0;
    }
    // SAFETY: `getenv` returns a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether scalars are on the host (0, the default) or on the device. One value for all handles.
static POINTER_MODE: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(_handle: u64, mode: u32) -> u32 {
    POINTER_MODE.store(mode, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetPointerMode_v2(_handle: u64, mode: OutArg<u32>) -> u32 {
    mode.set(POINTER_MODE.load(Ordering::Relaxed), INVALID_VALUE)
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
