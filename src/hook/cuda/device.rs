//! Which device and which context a call uses.
//!
//! Pinned, managed and imported memory are devices of their own: their addresses belong to no single GPU, so adding
//! them to one would make its sum wrong.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::functions::{answer, cuCtxGetCurrent, cuCtxGetDevice, cuDeviceGetCount, cuPointerGetAttribute};
use super::types::{Class, DeviceHint, Outcome, Stream};
use crate::snapshot::Device;

pub(super) fn device_of(outcome: &Outcome) -> Device {
    match outcome.class {
        Class::Managed => Device::Managed,
        Class::Imported => Device::Imported,
        class if class.is_pinned() => Device::Pinned,
        _ => Device::Cuda(ordinal_of(outcome).unwrap_or(u32::MAX)),
    }
}

fn ordinal_of(outcome: &Outcome) -> Option<u32> {
    match outcome.hint {
        DeviceHint::Ordinal(ordinal) => Some(ordinal),
        _ if has_one_device() => Some(0),
        DeviceHint::Stream if outcome.stream.is_special() => current_device(),
        DeviceHint::Stream | DeviceHint::Address => owner(outcome.address).or_else(current_device),
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

pub(super) fn current_device() -> Option<u32> {
    answer(cuCtxGetDevice)?.try_into().ok()
}

/// The context to number a stream by: the current one for the default streams, which every context has, else 0.
pub(super) fn context_of(stream: Stream) -> usize {
    if stream.is_special() { current_context() } else { 0 }
}

/// This thread's current context, or 0.
pub(super) fn current_context() -> usize {
    answer(cuCtxGetCurrent).unwrap_or(0)
}

/// The number of devices, if the driver is initialized.
pub(super) fn device_count() -> Option<u32> {
    answer(cuDeviceGetCount)?.try_into().ok()
}

pub(super) fn owner(address: u64) -> Option<u32> {
    const DEVICE_ORDINAL: c_int = 9;
    // The driver writes four bytes; -1 if there is no device.
    let device = answer(|value| cuPointerGetAttribute(value, DEVICE_ORDINAL, address))? as u32 as c_int;
    device.try_into().ok()
}
