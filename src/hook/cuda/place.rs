//! Which device and which context a call is about.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::driver::{Function, SUCCESS};
use super::events::{Class, Outcome, Stream, Whose};
use super::query;
use crate::snapshot::Device;

/// The memory that an allocation came from.
pub(super) fn device_of(outcome: &Outcome) -> Device {
    match outcome.class {
        Class::Managed => Device::Managed,
        Class::Imported => Device::Imported,
        class if class.is_pinned() => Device::Pinned,
        _ => Device::Cuda(ordinal_of(outcome).unwrap_or(u32::MAX)),
    }
}

fn ordinal_of(outcome: &Outcome) -> Option<u32> {
    match outcome.whose {
        Whose::Ordinal(ordinal) => Some(ordinal),
        _ if has_one_device() => Some(0),
        Whose::Streams if outcome.stream.is_special() => current_device(),
        Whose::Streams | Whose::Address => owner(outcome.address).or_else(current_device),
    }
}

fn has_one_device() -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    static ONE: AtomicBool = AtomicBool::new(false);
    if !KNOWN.load(Ordering::Acquire) {
        ONE.store(query::device_count() == Some(1), Ordering::Release);
        KNOWN.store(true, Ordering::Release);
    }
    ONE.load(Ordering::Acquire)
}

type Ask<T> = unsafe extern "C" fn(*mut T) -> c_int;

fn ask<T: Copy>(function: &Function, nothing: T) -> Option<T> {
    let address = function.address()?;
    // SAFETY: both functions that are asked in this way take a place for their answer and nothing else.
    let function = unsafe { std::mem::transmute::<usize, Ask<T>>(address) };
    let mut answer = nothing;
    // SAFETY: the place is ours.
    let result = unsafe { function(&mut answer) };
    (result == SUCCESS).then_some(answer)
}

/// The device of this thread's context.
pub(super) fn current_device() -> Option<u32> {
    static GET_DEVICE: Function = Function::new(c"cuCtxGetDevice");
    ask(&GET_DEVICE, 0 as c_int).and_then(|device| device.try_into().ok())
}

/// This thread's context, which is the one of the special streams; other streams are told apart by their
/// handles alone.
pub(super) fn context_of(stream: Stream) -> usize {
    if stream.is_special() { current_context() } else { 0 }
}

/// 0 if the thread has none.
pub(super) fn current_context() -> usize {
    static GET_CURRENT: Function = Function::new(c"cuCtxGetCurrent");
    ask(&GET_CURRENT, 0usize).unwrap_or(0)
}

/// The device that an address belongs to.
pub(super) fn owner(address: u64) -> Option<u32> {
    const DEVICE_ORDINAL: c_int = 9;
    static GET_ATTRIBUTE: Function = Function::new(c"cuPointerGetAttribute");
    let function = GET_ATTRIBUTE.address()?;
    // SAFETY: the address is that of the function with this signature.
    let function =
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_int, c_int, u64) -> c_int>(function) };
    let mut device: c_int = -1;
    // SAFETY: this attribute is a number of this size.
    let result = unsafe { function(&mut device, DEVICE_ORDINAL, address) };
    if result == SUCCESS { device.try_into().ok() } else { None }
}
