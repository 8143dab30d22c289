//! Which device and which context a call uses. This is determined before the call.
//!
//! Pinned, managed and imported memory are separate devices: their addresses belong to no single GPU, so adding them to
//! one would make its sum wrong.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memtrace_core::snapshot::Device;

use super::driver::SUCCESS;
use super::functions::{
    answer, cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDeviceGetCount,
    cuPointerGetAttribute, cuStreamGetCtx,
};
use super::pools;
use super::types::{Class, DeviceHint, Outcome, Place, Stream};

/// Number of contexts that have ended. If one ended during a call, the call's block may have been freed with it.
static ENDED: AtomicU64 = AtomicU64::new(0);

pub(super) fn ended() -> u64 {
    ENDED.load(Ordering::SeqCst)
}

/// Counts a context that ended. Called before the search for the blocks that ended with it. So a thread that enters
/// such a block after the search sees the new count.
pub(super) fn context_ended() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

impl Place {
    /// The place of an allocation, as known before the call.
    pub(super) fn before(class: Class, stream: Stream, hint: DeviceHint) -> Self {
        let ended = ended();
        let context = match stream {
            Stream::NONE => 0,
            stream if stream.is_special() => current_context(),
            _ if has_one_device() => 0,
            stream => answer(|context| cuStreamGetCtx(stream.handle(), context)).unwrap_or(0),
        };
        let pool = if let DeviceHint::Pool(pool) = hint { Some(pools::device_of(pool)) } else { None };
        let device = match class {
            Class::Managed => Some(Device::Managed),
            Class::Imported => Some(Device::Imported),
            class if class.is_pinned() => Some(Device::Pinned),
            _ => pool.flatten().or_else(|| ordinal_of(context, hint).map(Device::Cuda)),
        };
        Self { device, asks_address: pool == Some(None), context, ended }
    }
}

fn ordinal_of(context: usize, hint: DeviceHint) -> Option<u32> {
    match hint {
        DeviceHint::Ordinal(ordinal) => Some(ordinal),
        _ if has_one_device() => Some(0),
        _ if context == 0 => current_device(),
        _ => within(context, current_device).flatten(),
    }
}

impl Outcome {
    /// The device of the block. Queries the driver only if the device was not known before the call.
    pub(super) fn device(&self) -> Option<Device> {
        let by_address = || owner(self.address).map(Device::Cuda);
        if self.place.asks_address && !has_one_device() {
            by_address().or(self.place.device)
        } else {
            self.place.device
        }
    }
}

fn has_one_device() -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    static ONE: AtomicBool = AtomicBool::new(false);
    if !KNOWN.load(Ordering::Acquire) {
        let Some(count) = device_count() else { return false };
        ONE.store(count == 1, Ordering::Release);
        KNOWN.store(true, Ordering::Release);
    }
    ONE.load(Ordering::Acquire)
}

pub(super) fn current_device() -> Option<u32> {
    answer(cuCtxGetDevice)?.try_into().ok()
}

pub(super) fn within<T>(context: usize, query: impl FnOnce() -> T) -> Option<T> {
    if context == current_context() {
        return Some(query());
    }
    let pushed = cuCtxPushCurrent_v2(context)? == SUCCESS;
    let answer = pushed.then(query);
    if pushed {
        cuCtxPopCurrent_v2(&mut 0);
    }
    answer
}

/// The context that, together with the handle, identifies a stream. For a default stream this is the current context,
/// because default streams have the same handles in every context. It is 0 for other streams, whose handles are enough.
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
    // The driver writes four bytes, and -1 if there is no device.
    let device = answer(|value| cuPointerGetAttribute(value, DEVICE_ORDINAL, address))? as u32 as c_int;
    device.try_into().ok()
}

/// Whether an address belongs to a block of another device.
pub(super) fn is_of_another(device: Device, address: u64) -> bool {
    let Device::Cuda(ordinal) = device else { return false };
    !has_one_device() && owner(address).is_some_and(|owner| owner != ordinal)
}
