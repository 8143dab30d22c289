//! A stand-in for the CUDA runtime (`libcudart.so.13`): memory through the driver, launches that do nothing.
//! The device is the one of the current context; a thread without one gets the first device's.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use memtrace_cusim_libraries::{done, driver, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cudart.rs"));

const NOT_SUPPORTED: u32 = 801;
const INVALID_VALUE: u32 = 1;
const NO_DRIVER: u32 = 35;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Functions that call a function of the driver with the same arguments, in a context.
macro_rules! through_the_driver {
    ($($(#[$export:meta])? fn $name:ident = $driver:literal($($arg:ident: $type:ty),*);)*) => { $(
        $(#[$export])?
        extern "C" fn $name($($arg: $type),*) -> u32 {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let Some(function) = found(&FOUND, $driver) else { return NO_DRIVER };
            // SAFETY: that is the function's type.
            let function = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn($($type),*) -> u32>(function) };
            ensure_context();
            remember(function($($arg),*))
        }
    )* };
}

through_the_driver! {
    #[unsafe(no_mangle)]
    fn cudaMalloc = c"cuMemAlloc_v2"(address: *mut u64, size: usize);
    #[unsafe(no_mangle)]
    fn cudaFree = c"cuMemFree_v2"(address: u64);
    #[unsafe(no_mangle)]
    fn cudaMallocManaged = c"cuMemAllocManaged"(address: *mut u64, size: usize, flags: u32);
    #[unsafe(no_mangle)]
    fn cudaMallocAsync = c"cuMemAllocAsync"(address: *mut u64, size: usize, stream: u64);
    #[unsafe(no_mangle)]
    fn cudaMallocAsync_ptsz = c"cuMemAllocAsync_ptsz"(address: *mut u64, size: usize, stream: u64);
    #[unsafe(no_mangle)]
    fn cudaFreeAsync = c"cuMemFreeAsync"(address: u64, stream: u64);
    #[unsafe(no_mangle)]
    fn cudaFreeAsync_ptsz = c"cuMemFreeAsync_ptsz"(address: u64, stream: u64);
    #[unsafe(no_mangle)]
    fn cudaMallocHost = c"cuMemAllocHost_v2"(address: *mut u64, size: usize);
    #[unsafe(no_mangle)]
    fn cudaFreeHost = c"cuMemFreeHost"(address: u64);
    #[unsafe(no_mangle)]
    fn cudaDeviceSynchronize = c"cuCtxSynchronize"();
    #[unsafe(no_mangle)]
    fn cudaStreamSynchronize = c"cuStreamSynchronize"(stream: u64);
    #[unsafe(no_mangle)]
    fn cudaStreamSynchronize_ptsz = c"cuStreamSynchronize_ptsz"(stream: u64);
    #[unsafe(no_mangle)]
    fn cudaMemGetInfo = c"cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    #[unsafe(no_mangle)]
    fn cudaGetDeviceCount = c"cuDeviceGetCount"(count: *mut i32);
}

/// Fills and copies: the driver takes their arguments in another order.
macro_rules! reordered {
    ($(fn $name:ident($($arg:ident: $type:ty),*) = $base:ident($($given:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            $base($($given),*)
        }
    )* };
}

through_the_driver! {
    fn fill = c"cuMemsetD8_v2"(address: u64, value: u8, count: usize);
    fn fill_async = c"cuMemsetD8Async"(address: u64, value: u8, count: usize, stream: u64);
    fn fill_async_ptsz = c"cuMemsetD8Async_ptsz"(address: u64, value: u8, count: usize, stream: u64);
    fn copy = c"cuMemcpy"(to: u64, from: u64, count: usize);
    fn copy_async = c"cuMemcpyAsync"(to: u64, from: u64, count: usize, stream: u64);
    fn copy_async_ptsz = c"cuMemcpyAsync_ptsz"(to: u64, from: u64, count: usize, stream: u64);
    fn device_of_context = c"cuCtxGetDevice"(device: *mut i32);
}

reordered! {
    fn cudaMemset(address: u64, value: i32, count: usize) = fill(address, value as u8, count);
    fn cudaMemsetAsync(address: u64, value: i32, count: usize, stream: u64) = fill_async(address, value as u8, count, stream);
    fn cudaMemsetAsync_ptsz(address: u64, value: i32, count: usize, stream: u64) = fill_async_ptsz(address, value as u8, count, stream);
    fn cudaMemcpy(to: u64, from: u64, count: usize, _kind: u32) = copy(to, from, count);
    fn cudaMemcpyAsync(to: u64, from: u64, count: usize, _kind: u32, stream: u64) = copy_async(to, from, count, stream);
    fn cudaMemcpyAsync_ptsz(to: u64, from: u64, count: usize, _kind: u32, stream: u64) = copy_async_ptsz(to, from, count, stream);
    fn cudaGetDevice(device: *mut i32) = device_of_context(device);
}

/// Makes a device's primary context current.
#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: i32) -> u32 {
    remember(set_device(device).unwrap_or(NO_DRIVER))
}

fn set_device(device: i32) -> Option<u32> {
    let (init, retain, set) = (driver(c"cuInit")?, driver(c"cuDevicePrimaryCtxRetain")?, driver(c"cuCtxSetCurrent")?);
    // SAFETY: that is the function's type.
    let init = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(u32) -> u32>(init) };
    // SAFETY: as above.
    let retain = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(*mut u64, i32) -> u32>(retain) };
    // SAFETY: as above.
    let set = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(u64) -> u32>(set) };
    let mut context = 0;
    let codes = [init(0), retain(&mut context, device), set(context)];
    Some(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// A thread that has no context gets the first device's.
fn ensure_context() {
    let Some(function) = driver(c"cuCtxGetCurrent") else { return };
    // SAFETY: that is the function's type.
    let current = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(*mut u64) -> u32>(function) };
    let mut context = 0;
    if current(&mut context) != 0 || context == 0 {
        set_device(0);
    }
}

fn found(cache: &AtomicPtr<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // Relaxed: every thread finds the same function.
    if let Some(function) = NonNull::new(cache.load(Ordering::Relaxed)) {
        return Some(function);
    }
    let function = driver(name)?;
    cache.store(function.as_ptr(), Ordering::Relaxed);
    Some(function)
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

/// What code that nvcc made calls before `main` and at each launch: kernels are registered and never run.
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
extern "C" fn __cudaGetKernel(kernel: *mut u64, function: u64) -> u32 {
    let Some(kernel) = NonNull::new(kernel) else { return INVALID_VALUE };
    // SAFETY: the caller passes a pointer to a handle that it owns.
    unsafe { kernel.write(function) };
    0
}

/// A launch that the code pushed: its sizes do not matter, nothing runs.
#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: *mut [u32; 3],
    block: *mut [u32; 3],
    shared: *mut usize,
    stream: *mut u64,
) -> u32 {
    // SAFETY: the caller passes pointers to sizes that it owns, here and below.
    unsafe { grid.write([1; 3]) };
    // SAFETY: as above.
    unsafe { block.write([1; 3]) };
    // SAFETY: as above.
    unsafe { shared.write(0) };
    // SAFETY: as above.
    unsafe { stream.write(0) };
    0
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
