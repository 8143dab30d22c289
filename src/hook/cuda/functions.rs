//! The driver's functions that memtrace calls for itself, each declared once, with the types that `cuda.h` gives them.
//!
//! They answer `None` where the driver is not loaded or does not have the function. Where `cuda.h` has a pointer for an answer
//! there is a `&mut` here, which has the same form. Handles are the driver's own, or were given to it by the program.
#![expect(unsafe_code, reason = "functions of C are called by their addresses")]
#![allow(non_snake_case, reason = "they are called as the driver calls them")]

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use super::driver::{Function, SUCCESS};

/// A context, pool, stream or graph, by its address.
pub(super) type Object = usize;

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(pub(super) fn $name($($arg: $type),*) -> Option<c_int> {
            static FUNCTION: Function = Function::named(concat!(stringify!($name), "\0"));
            let address = FUNCTION.address()?;
            // SAFETY: the address is that of the function with this signature.
            let function = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address) };
            // SAFETY: places for answers are exclusive and of the types that the driver writes; handles are objects of its own.
            Some(unsafe { function($($arg),*) })
        })*
    };
}

functions! {
    cuDeviceGetCount(count: &mut c_int);
    cuDeviceGet(device: &mut c_int, ordinal: c_int);
    cuDeviceGetDefaultMemPool(pool: &mut Object, device: c_int);
    cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: &mut u64);
    cuDevicePrimaryCtxGetState(device: c_int, flags: &mut c_uint, active: &mut c_int);
    cuDevicePrimaryCtxRetain(context: &mut Object, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxGetCurrent(context: &mut Object);
    cuCtxGetDevice(device: &mut c_int);
    cuCtxPushCurrent_v2(context: Object);
    cuCtxPopCurrent_v2(context: &mut Object);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemPoolGetAttribute(pool: Object, attribute: c_int, value: &mut u64);
    // The attributes that are asked for are words, or smaller numbers.
    cuPointerGetAttribute(value: &mut u64, attribute: c_int, address: u64);
    cuStreamIsCapturing(stream: Object, status: &mut c_int);
    cuThreadExchangeStreamCaptureMode(mode: &mut c_int);
    cuStreamGetCaptureInfo_v2(
        stream: Object, status: &mut c_int, id: &mut u64, graph: &mut Object, before: *mut *const Object, count: *mut usize);
}

/// An answer, if the call succeeded.
pub(super) fn answer<T: Default>(ask: impl FnOnce(&mut T) -> Option<c_int>) -> Option<T> {
    let mut value = T::default();
    (ask(&mut value)? == SUCCESS).then_some(value)
}

/// The capture that a stream takes part in: its id and its graph.
pub(super) fn capture_of(stream: Object) -> Option<(u64, Object)> {
    let (mut status, mut id, mut graph) = (0, 0, 0);
    // What comes before the next node is not asked for.
    let result = cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, null_mut(), null_mut())?;
    (result == SUCCESS).then_some((id, graph))
}
