//! Which device and which context a call is about.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::functions::{answer, cuCtxGetCurrent, cuCtxGetDevice, cuDeviceGetCount, cuPointerGetAttribute};
use super::words::{Class, Outcome, Stream, Whose};
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
        ONE.store(device_count() == Some(1), Ordering::Release);
        KNOWN.store(true, Ordering::Release);
    }
    ONE.load(Ordering::Acquire)
}

/// The device of this thread's context.
pub(super) fn current_device() -> Option<u32> {
    answer(cuCtxGetDevice)?.try_into().ok()
}

/// This thread's context, which is the one of the special streams; other streams are told apart by their
/// handles alone.
pub(super) fn context_of(stream: Stream) -> usize {
    if stream.is_special() { current_context() } else { 0 }
}

/// 0 if the thread has none.
pub(super) fn current_context() -> usize {
    answer(cuCtxGetCurrent).unwrap_or(0)
}

/// How many devices there are, if the driver has been initialised.
pub(super) fn device_count() -> Option<u32> {
    answer(cuDeviceGetCount)?.try_into().ok()
}

/// The device that an address belongs to.
pub(super) fn owner(address: u64) -> Option<u32> {
    const DEVICE_ORDINAL: c_int = 9;
    // A number of four bytes; -1 where there is none.
    let device = answer(|value| cuPointerGetAttribute(value, DEVICE_ORDINAL, address))? as u32 as c_int;
    device.try_into().ok()
}
