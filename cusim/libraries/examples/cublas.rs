//! Stand-in for cuBLAS (`libcublas.so.13`): handles, and matrix products that leave their results unchanged. Each
//! product launches an empty kernel with its matrices and the workspace, as the real library does.
//!
//! With `MEMTRACE_CUSIM_CUBLAS_WORKSPACE=BYTES` each handle allocates that much device memory with `cuMemAlloc`, as the
//! real library allocates its workspace.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memtrace_cusim_libraries::{EmptyKernel, OutArg, done, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublas.rs"));

const NOT_SUPPORTED: u32 = 15;
const ALLOCATION_FAILED: u32 = 3;
const INVALID_VALUE: u32 = 7;

/// A handle is the address of its workspace, or this number if it has no workspace.
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

/// The default mode, whatever was set.
#[unsafe(no_mangle)]
extern "C" fn cublasGetMathMode(_handle: u64, mode: OutArg<u32>) -> u32 {
    mode.set(0, INVALID_VALUE)
}

/// The stream of all handles.
static STREAM: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(_handle: u64, stream: u64) -> u32 {
    STREAM.store(stream, Ordering::Relaxed);
    0
}

const EXECUTION_FAILED: u32 = 13;

fn launch(kernel: &EmptyKernel, handle: u64, operands: [u64; 3]) -> u32 {
    let [a, b, c] = operands;
    let workspace = if handle == NO_WORKSPACE { 0 } else { handle };
    let result = kernel.launch(STREAM.load(Ordering::Relaxed), &[a, b, c, workspace]);
    if result == 0 { 0 } else { EXECUTION_FAILED }
}

/// Defines functions with up to three operands in device memory. The names after `on` say which arguments these
/// operands are.
macro_rules! on_device {
    ($(fn $name:ident($($arg:ident: $type:ty),*) on $a:ident $(, $more:ident)*;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the interface is cuBLAS's")]
        extern "C" fn $name(handle: u64, $($arg: $type),*) -> u32 {
            static KERNEL: EmptyKernel = EmptyKernel::named(concat!(stringify!($name), "_kernel"));
            let mut operands = [0; 3];
            operands.iter_mut().zip([$a $(, $more)*]).for_each(|(place, operand)| *place = operand);
            launch(&KERNEL, handle, operands)
        }
    )* };
}

macro_rules! products {
    ($(fn $name:ident;)*) => { on_device! { $(
        fn $name(
            _ta: u32, _tb: u32, _m: i32, _n: i32, _k: i32, _alpha: u64, a: u64, _lda: i32, b: u64, _ldb: i32, _beta: u64,
            c: u64, _ldc: i32
        ) on a, b, c;
    )* } };
}

macro_rules! batched_products {
    ($(fn $name:ident;)*) => { on_device! { $(
        fn $name(
            _ta: u32, _tb: u32, _m: i32, _n: i32, _k: i32, _alpha: u64, a: u64, _lda: i32, _sa: i64, b: u64, _ldb: i32,
            _sb: i64, _beta: u64, c: u64, _ldc: i32, _sc: i64, _count: i32
        ) on a, b, c;
    )* } };
}

macro_rules! with_vectors {
    ($(fn $name:ident;)*) => { on_device! { $(
        fn $name(
            _t: u32, _m: i32, _n: i32, _alpha: u64, a: u64, _lda: i32, x: u64, _incx: i32, _beta: u64, y: u64, _incy: i32
        ) on a, x, y;
    )* } };
}

products! {
    fn cublasSgemm_v2;
    fn cublasDgemm_v2;
    fn cublasHgemm;
}

batched_products! {
    fn cublasSgemmStridedBatched;
    fn cublasDgemmStridedBatched;
    fn cublasHgemmStridedBatched;
}

with_vectors! {
    fn cublasSgemv_v2;
    fn cublasDgemv_v2;
}

on_device! {
    fn cublasGemmEx(
        _ta: u32, _tb: u32, _m: i32, _n: i32, _k: i32, _alpha: u64, a: u64, _at: u32, _lda: i32, b: u64, _bt: u32,
        _ldb: i32, _beta: u64, c: u64, _ct: u32, _ldc: i32, _compute: u32, _algorithm: u32
    ) on a, b, c;
    fn cublasGemmStridedBatchedEx(
        _ta: u32, _tb: u32, _m: i32, _n: i32, _k: i32, _alpha: u64, a: u64, _at: u32, _lda: i32, _sa: i64, b: u64,
        _bt: u32, _ldb: i32, _sb: i64, _beta: u64, c: u64, _ct: u32, _ldc: i32, _sc: i64, _count: i32, _compute: u32,
        _algorithm: u32
    ) on a, b, c;
    fn cublasGemmGroupedBatchedEx(
        _ta: u64, _tb: u64, _m: u64, _n: u64, _k: u64, _alpha: u64, a: u64, _at: u32, _lda: u64, b: u64, _bt: u32,
        _ldb: u64, _beta: u64, c: u64, _ct: u32, _ldc: u64, _count: i32, _sizes: u64, _compute: u32
    ) on a, b, c;
    // The operands are tables of pointers.
    fn cublasSgemmBatched(
        _ta: u32, _tb: u32, _m: i32, _n: i32, _k: i32, _alpha: u64, a: u64, _lda: i32, b: u64, _ldb: i32, _beta: u64,
        c: u64, _ldc: i32, _count: i32
    ) on a, b, c;
    fn cublasSasum_v2(_n: i32, x: u64, _incx: i32, _result: u64) on x;
    fn cublasDasum_v2(_n: i32, x: u64, _incx: i32, _result: u64) on x;
}

done! {
    fn cublasSetWorkspace_v2;
    fn cublasSetMathMode;
    fn cublasSetSmCountTarget;
}
