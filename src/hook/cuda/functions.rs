//! Typed declarations, after `cuda.h`, of the driver functions that memtrace itself calls.
//!
//! A call returns `None` if the driver is not loaded or does not have the function. An output pointer of `cuda.h` is a
//! `&mut` here, which has the same ABI. Handles come from the driver, directly or through the program.
#![expect(unsafe_code, reason = "functions of C are called by their addresses")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use super::driver::{Function, SUCCESS};

/// The handle of a context, pool, stream or graph.
pub(super) type DriverObject = usize;

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(pub(super) fn $name($($arg: $type),*) -> Option<c_int> {
            static FUNCTION: Function = Function::named(concat!(stringify!($name), "\0"));
            let address = FUNCTION.address()?;
            // SAFETY: the address is that of the function with this signature.
            let function = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address) };
            // SAFETY: output references are exclusive and have the types that the driver writes. Handles are the
            // driver's.
            Some(unsafe { function($($arg),*) })
        })*
    };
}

functions! {
    cuDeviceGetCount(count: &mut c_int);
    cuDeviceGet(device: &mut c_int, ordinal: c_int);
    cuDeviceGetAttribute(value: &mut c_int, attribute: c_int, device: c_int);
    cuDeviceGetDefaultMemPool(pool: &mut DriverObject, device: c_int);
    cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: &mut u64);
    cuDevicePrimaryCtxGetState(device: c_int, flags: &mut c_uint, active: &mut c_int);
    cuDevicePrimaryCtxRetain(context: &mut DriverObject, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxGetCurrent(context: &mut DriverObject);
    cuCtxGetDevice(device: &mut c_int);
    cuCtxGetLimit(value: &mut usize, limit: c_int);
    cuCtxPushCurrent_v2(context: DriverObject);
    cuCtxPopCurrent_v2(context: &mut DriverObject);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemPoolGetAttribute(pool: DriverObject, attribute: c_int, value: &mut u64);
    // The attribute determines the real type of `value`. No attribute that memtrace queries has more than 8 bytes.
    cuPointerGetAttribute(value: &mut u64, attribute: c_int, address: u64);
    // The `usize` is a pointer to text.
    cuFuncGetName(name: &mut usize, function: DriverObject);
    cuKernelGetName(name: &mut usize, kernel: DriverObject);
    cuFuncGetAttribute(value: &mut c_int, attribute: c_int, function: DriverObject);
    cuKernelGetAttribute(value: &mut c_int, attribute: c_int, kernel: DriverObject, device: c_int);
    cuFuncGetParamInfo(function: DriverObject, index: usize, offset: &mut usize, size: &mut usize);
    cuKernelGetParamInfo(kernel: DriverObject, index: usize, offset: &mut usize, size: &mut usize);
    cuStreamGetCtx(stream: DriverObject, context: &mut DriverObject);
    cuStreamIsCapturing(stream: DriverObject, status: &mut c_int);
    cuThreadExchangeStreamCaptureMode(mode: &mut c_int);
    cuStreamGetCaptureInfo_v2(
        stream: DriverObject, status: &mut c_int, id: &mut u64, graph: &mut DriverObject,
        before: *mut *const DriverObject, count: *mut usize);
}

/// Calls a function with one output. `None` if the call failed.
pub(super) fn answer<T: Default>(call: impl FnOnce(&mut T) -> Option<c_int>) -> Option<T> {
    let mut value = T::default();
    (call(&mut value)? == SUCCESS).then_some(value)
}

/// The id and the graph of the capture that a stream takes part in.
pub(super) fn capture_of(stream: DriverObject) -> Option<(u64, DriverObject)> {
    let (mut status, mut id, mut graph) = (0, 0, 0);
    // The two null pointers are for outputs about dependencies, which are not needed.
    let result = cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, null_mut(), null_mut())?;
    (result == SUCCESS).then_some((id, graph))
}
