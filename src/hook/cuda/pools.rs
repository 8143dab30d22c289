//! Pools that the program made for itself.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::driver::SUCCESS;
use super::requests::Handle;
use super::segments;
use crate::record::fork;
use crate::record::memory::{OwnVec, System, try_push};

#[derive(Clone, Copy, Debug)]
struct OwnPool {
    handle: u64,
    /// The device's ordinal; `None` for memory of the host.
    device: Option<u32>,
    is_gone: bool,
}

static POOLS: Mutex<OwnVec<OwnPool>> = Mutex::new(OwnVec::new_in(System));

fn with<T>(act: impl FnOnce(&mut OwnVec<OwnPool>) -> T) -> T {
    let _no_fork = fork::numbering();
    // Nothing done under this lock panics.
    act(&mut POOLS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// `cuMemPoolCreate`: what is to be done after it.
pub(super) fn created(out: *mut Handle, properties: *const LocationOfPool) -> impl FnOnce(c_int) {
    move |result| {
        if result != SUCCESS || out.is_null() || properties.is_null() {
            return;
        }
        // SAFETY: the driver has written it.
        let handle = unsafe { out.read() };
        // SAFETY: the driver took it.
        let properties = unsafe { properties.read() };
        add(OwnPool { handle: handle.addr() as u64, device: properties.ordinal(), is_gone: false });
    }
}

fn add(pool: OwnPool) {
    with(|pools| {
        pools.retain(|known| known.handle != pool.handle);
        try_push(pools, pool);
    });
}

/// `cuMemPoolDestroy`: what is to be done after it.
pub(super) fn destroyed(pool: Handle) -> impl FnOnce(c_int) {
    let handle = pool.addr() as u64;
    move |result| {
        if result == SUCCESS {
            with(|pools| {
                pools.iter_mut().filter(|pool| pool.handle == handle).for_each(|pool| pool.is_gone = true);
            });
            segments::settle(result);
        }
    }
}

/// Its handle may no longer be used.
pub(super) fn was_destroyed(handle: u64) -> bool {
    with(|pools| pools.iter().any(|pool| pool.handle == handle && pool.is_gone))
}

/// Those of a device.
pub(super) fn of_device(ordinal: u32) -> OwnVec<u64> {
    with(|pools| {
        let mut handles = OwnVec::new_in(System);
        for pool in pools.iter().filter(|pool| !pool.is_gone && pool.device == Some(ordinal)) {
            try_push(&mut handles, pool.handle);
        }
        handles
    })
}

/// The beginning of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationOfPool {
    allocation: c_int,
    handles: c_int,
    kind: c_int,
    id: c_int,
}

impl LocationOfPool {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: c_int = 1;

    /// The device's ordinal, if it is one.
    pub(super) fn ordinal(self) -> Option<u32> {
        if self.kind == Self::DEVICE { self.id.try_into().ok() } else { None }
    }
}
