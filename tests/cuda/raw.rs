//! The driver's functions, as far as the tests call them by hand: each with its answer's code.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUresult};

pub(crate) type Outcome<T> = Result<T, CUresult>;

fn outcome<T>(result: CUresult, value: T) -> Outcome<T> {
    if result == CUresult::CUDA_SUCCESS { Ok(value) } else { Err(result) }
}

/// `name(arguments) -> type = cuFunction(&mut answer, arguments)`, or without an answer.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty = $nothing:expr)?, $function:ident;)*) => {$(
        pub(crate) fn $name($($arg: $type),*) -> Outcome<calls!(@type $($out)?)> {
            calls!(@call $function [$($arg),*] $($nothing)?)
        }
    )*};
    (@type) => { () };
    (@type $out:ty) => { $out };
    (@call $function:ident [$($arg:expr),*]) => {
        // SAFETY: what is passed is what the tests were given before; the driver checks it.
        outcome(unsafe { sys::$function($($arg),*) }, ())
    };
    (@call $function:ident [$($arg:expr),*] $nothing:expr) => {{
        let mut answer = $nothing;
        // SAFETY: the place for the answer is ours; the driver checks the rest.
        let result = unsafe { sys::$function(&mut answer, $($arg),*) };
        outcome(result, answer)
    }};
}

pub(crate) type Stream = sys::CUstream;
/// The default stream, and the one that each thread has of its own.
pub(crate) const LEGACY: Stream = std::ptr::null_mut();
pub(crate) const PER_THREAD: Stream = std::ptr::without_provenance_mut(2);

calls! {
    fn alloc(size: usize) -> u64 = 0, cuMemAlloc_v2;
    fn managed(size: usize, flags: u32) -> u64 = 0, cuMemAllocManaged;
    fn free(address: u64), cuMemFree_v2;
    fn alloc_async(size: usize, stream: Stream) -> u64 = 0, cuMemAllocAsync;
    fn alloc_from_pool(size: usize, pool: sys::CUmemoryPool, stream: Stream) -> u64 = 0, cuMemAllocFromPoolAsync;
    fn free_async(address: u64, stream: Stream), cuMemFreeAsync;
    fn host_alloc(size: usize, flags: u32) -> *mut c_void = std::ptr::null_mut(), cuMemHostAlloc;
    fn host_alloc_plain(size: usize) -> *mut c_void = std::ptr::null_mut(), cuMemAllocHost_v2;
    fn host_free(address: *mut c_void), cuMemFreeHost;
    fn host_register(address: *mut c_void, size: usize, flags: u32), cuMemHostRegister_v2;
    fn host_unregister(address: *mut c_void), cuMemHostUnregister;
    fn context_create(options: *mut sys::CUctxCreateParams, flags: u32, device: i32) -> sys::CUcontext =
        std::ptr::null_mut(), cuCtxCreate_v4;
    fn init(flags: u32), cuInit;
    fn set_current(context: sys::CUcontext), cuCtxSetCurrent;
    fn context_destroy(context: sys::CUcontext), cuCtxDestroy_v2;
    fn primary_reset(device: i32), cuDevicePrimaryCtxReset_v2;
    fn default_pool(device: i32) -> sys::CUmemoryPool = std::ptr::null_mut(), cuDeviceGetDefaultMemPool;
    fn begin_capture(stream: Stream, mode: sys::CUstreamCaptureMode), cuStreamBeginCapture_v2;
}

pub(crate) fn end_capture(stream: Stream) -> Outcome<()> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the place for the answer is ours.
    outcome(unsafe { sys::cuStreamEndCapture(stream, &mut graph) }, ())
}

/// Gives the mode before.
pub(crate) fn exchange_mode(mut mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    // SAFETY: the place is ours.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    outcome(result, mode).unwrap()
}

/// (address, bytes of a row).
pub(crate) fn alloc_pitch(width: usize, rows: usize) -> Outcome<(u64, usize)> {
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: the places for the answers are ours.
    let result = unsafe { sys::cuMemAllocPitch_v2(&mut address, &mut pitch, width, rows, 4) };
    outcome(result, (address, pitch))
}

/// What `cuGetProcAddress_v2` answers.
pub(crate) fn get_proc_address(name: &CStr, version: i32, flags: u64) -> usize {
    let (mut found, mut status) =
        (std::ptr::null_mut(), sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
    // SAFETY: the places for the answers are ours, and the name ends with a zero byte.
    let result = unsafe { sys::cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status) };
    outcome(result, found as usize).unwrap()
}
