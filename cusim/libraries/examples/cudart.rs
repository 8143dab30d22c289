//! Stand-in for the CUDA runtime (`libcudart.so.13`): memory through the driver, launches without effect.
//!
//! The device is that of the current context. A thread without a context gets the first device's.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::AtomicPtr;

use memtrace_cusim_libraries::{OutArg, done, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cudart.rs"));

const NOT_SUPPORTED: u32 = 801;
const INVALID_VALUE: u32 = 1;
const NO_DRIVER: u32 = 35;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Functions that call a driver function in a context, with the same arguments or with those after `with`.
macro_rules! through_the_driver {
    ($(fn $name:ident $args:tt = $driver:literal $(with $given:tt)?;)*) => { $(function! { $name $args $driver $($given)? })* };
}

macro_rules! function {
    ($name:ident ($($arg:ident: $type:ty),*) $driver:literal) => {
        function! { $name ($($arg: $type),*) $driver ($($arg => $type),*) }
    };
    ($name:ident ($($arg:ident: $type:ty),*) $driver:literal ($($given:expr => $given_type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            let Some(function) = driver_function!($driver: fn($($given_type),*)) else { return NO_DRIVER };
            ensure_context();
            remember(function($($given),*))
        }
    };
}

through_the_driver! {
    fn cudaMalloc(address: *mut u64, size: usize) = c"cuMemAlloc_v2";
    fn cudaFree(address: u64) = c"cuMemFree_v2";
    fn cudaMallocManaged(address: *mut u64, size: usize, flags: u32) = c"cuMemAllocManaged";
    fn cudaMallocAsync(address: *mut u64, size: usize, stream: u64) = c"cuMemAllocAsync";
    fn cudaMallocAsync_ptsz(address: *mut u64, size: usize, stream: u64) = c"cuMemAllocAsync_ptsz";
    fn cudaFreeAsync(address: u64, stream: u64) = c"cuMemFreeAsync";
    fn cudaFreeAsync_ptsz(address: u64, stream: u64) = c"cuMemFreeAsync_ptsz";
    fn cudaMallocHost(address: *mut u64, size: usize) = c"cuMemAllocHost_v2";
    fn cudaFreeHost(address: u64) = c"cuMemFreeHost";
    fn cudaDeviceSynchronize() = c"cuCtxSynchronize";
    fn cudaStreamSynchronize(stream: u64) = c"cuStreamSynchronize";
    fn cudaStreamSynchronize_ptsz(stream: u64) = c"cuStreamSynchronize_ptsz";
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) = c"cuMemGetInfo_v2";
    fn cudaGetDeviceCount(count: *mut i32) = c"cuDeviceGetCount";
    fn cudaGetDevice(device: *mut i32) = c"cuCtxGetDevice";
    fn cudaMemset(address: u64, value: i32, count: usize) =
        c"cuMemsetD8_v2" with (address => u64, value as u8 => u8, count => usize);
    fn cudaMemsetAsync(address: u64, value: i32, count: usize, stream: u64) =
        c"cuMemsetD8Async" with (address => u64, value as u8 => u8, count => usize, stream => u64);
    fn cudaMemsetAsync_ptsz(address: u64, value: i32, count: usize, stream: u64) =
        c"cuMemsetD8Async_ptsz" with (address => u64, value as u8 => u8, count => usize, stream => u64);
    fn cudaMemcpy(to: u64, from: u64, count: usize, _kind: u32) =
        c"cuMemcpy" with (to => u64, from => u64, count => usize);
    fn cudaMemcpyAsync(to: u64, from: u64, count: usize, _kind: u32, stream: u64) =
        c"cuMemcpyAsync" with (to => u64, from => u64, count => usize, stream => u64);
    fn cudaMemcpyAsync_ptsz(to: u64, from: u64, count: usize, _kind: u32, stream: u64) =
        c"cuMemcpyAsync_ptsz" with (to => u64, from => u64, count => usize, stream => u64);
}

/// Makes a device's primary context current.
#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: i32) -> u32 {
    remember(set_device(device).unwrap_or(NO_DRIVER))
}

fn set_device(device: i32) -> Option<u32> {
    let init = driver_function!(c"cuInit": fn(u32))?;
    let retain = driver_function!(c"cuDevicePrimaryCtxRetain": fn(*mut u64, i32))?;
    let set = driver_function!(c"cuCtxSetCurrent": fn(u64))?;
    let mut context = 0;
    let codes = [init(0), retain(&mut context, device), set(context)];
    Some(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// Gives a thread without a context that of the first device.
fn ensure_context() {
    let Some(current) = driver_function!(c"cuCtxGetCurrent": fn(*mut u64)) else { return };
    let mut context = 0;
    if current(&mut context) != 0 || context == 0 {
        set_device(0);
    }
}

fn remember(code: u32) -> u32 {
    if code != 0 {
        LAST_ERROR.set(code);
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> u32 {
    LAST_ERROR.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> u32 {
    LAST_ERROR.get()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    match code {
        0 => c"no error".as_ptr(),
        2 => c"out of memory".as_ptr(),
        _ => c"an error of the simulated runtime".as_ptr(),
    }
}

/// Functions that code compiled by nvcc calls before `main` and at each launch. Kernels are registered and never run.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: usize) -> *const AtomicPtr<c_void> {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    &raw const HANDLE
}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_handle: usize) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaGetKernel(kernel: OutArg<u64>, function: u64) -> u32 {
    kernel.set(function, INVALID_VALUE)
}

/// The launch configuration, which does not matter because nothing runs.
#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: OutArg<[u32; 3]>,
    block: OutArg<[u32; 3]>,
    shared: OutArg<usize>,
    stream: OutArg<u64>,
) -> u32 {
    grid.set([1; 3], INVALID_VALUE)
        | block.set([1; 3], INVALID_VALUE)
        | shared.set(0, INVALID_VALUE)
        | stream.set(0, INVALID_VALUE)
}

done! {
    fn __cudaRegisterFatBinaryEnd;
    fn __cudaUnregisterFatBinary;
    fn __cudaRegisterFunction;
    fn __cudaRegisterVar;
    fn __cudaPushCallConfiguration;
    fn __cudaLaunchKernel;
    fn __cudaLaunchKernel_ptsz;
    fn cudaLaunchKernel;
    fn cudaLaunchKernel_ptsz;
    fn cudaLaunchKernelExC;
    fn cudaLaunchKernelExC_ptsz;
    fn cudaFuncSetAttribute;
}
