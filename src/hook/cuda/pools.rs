//! Memory pools that the program created (`cuMemPoolCreate`), and those that the driver has for host and managed memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use memtrace_core::snapshot::Device;

use super::driver::SUCCESS;
use super::pointers::CallerPtr;
use super::table::HandleTable;
use super::types::{Handle, PoolLocation};
use crate::record::memory::OwnVec;

#[derive(Clone, Copy, Debug)]
struct KnownPool {
    /// The device of its blocks, if it is known.
    device: Option<Device>,
    is_destroyed: bool,
}

static POOLS: HandleTable<u64, KnownPool> = HandleTable::new();
/// Whether there ever was a pool of host memory, or a graph's node that allocates such memory.
static HAS_HOST_POOLS: AtomicBool = AtomicBool::new(false);

fn enter(handle: u64, device: Option<Device>) {
    POOLS.insert(handle, KnownPool { device: noted(device), is_destroyed: false });
}

/// Notes that a pool, or a graph's node that allocates, has memory of this device. Returns the device.
pub(super) fn noted(device: Option<Device>) -> Option<Device> {
    if device == Some(Device::Pinned) {
        HAS_HOST_POOLS.store(true, Ordering::Release);
    }
    device
}

pub(super) fn created(out: CallerPtr<u64>, properties: CallerPtr<PoolLocation>) -> impl FnOnce(c_int) {
    move |result| {
        if let (Some(handle), Some(properties)) = (out.written(result), properties.written(result)) {
            enter(handle, properties.device());
        }
    }
}

/// The program asked for the pool of a location: `cuMemGetDefaultMemPool`, `cuMemGetMemPool`. Only pools of host and
/// managed memory are entered. Those of a GPU are not, because [`of_device`] is for pools that the program created.
pub(super) fn at_location(
    out: CallerPtr<u64>,
    location: CallerPtr<[c_int; 2]>,
    allocation: c_int,
) -> impl FnOnce(c_int) {
    move |result| {
        let (Some(handle), Some(location)) = (out.written(result), location.written(result)) else { return };
        let device = PoolLocation::of_location(location, allocation).device();
        if matches!(device, Some(Device::Pinned | Device::Managed)) {
            enter(handle, device);
        }
    }
}

/// Marks the pool as destroyed before the call, so that it is not queried any more: after the call the handle may
/// belong to another pool.
pub(super) fn destroyed(pool: Handle) -> impl FnOnce(c_int) {
    let mark = move |is_destroyed| {
        POOLS.change(pool.addr() as u64, |pool| std::mem::replace(&mut pool.is_destroyed, is_destroyed))
    };
    let existed = mark(true) == Some(false);
    move |result| {
        if result != SUCCESS && existed {
            mark(false);
        }
    }
}

/// Whether the pool was destroyed, so that its handle may no longer be used.
pub(super) fn was_destroyed(handle: u64) -> bool {
    POOLS.get(handle).is_some_and(|pool| pool.is_destroyed)
}

pub(super) fn has_host_pools() -> bool {
    HAS_HOST_POOLS.load(Ordering::Acquire)
}

/// The device of a pool's blocks.
pub(super) fn device_of(handle: u64) -> Option<Device> {
    POOLS.get(handle).filter(|pool| !pool.is_destroyed)?.device
}

pub(super) fn of_device(ordinal: u32) -> OwnVec<u64> {
    POOLS.pick(|handle, pool| (!pool.is_destroyed && pool.device == Some(Device::Cuda(ordinal))).then_some(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_comes_again_at_once_is_another() {
        let pool: Handle = std::ptr::without_provenance_mut(0x7301);
        let place = PoolLocation::on_device(31);
        created(CallerPtr::to(&0x7301), CallerPtr::to(&place))(SUCCESS);
        destroyed(pool)(1);
        assert!(!was_destroyed(0x7301) && of_device(31).as_slice() == [0x7301]);
        let done = destroyed(pool);
        assert!(was_destroyed(0x7301) && of_device(31).is_empty());
        created(CallerPtr::to(&0x7301), CallerPtr::to(&place))(SUCCESS);
        done(SUCCESS);
        assert!(!was_destroyed(0x7301));
        [SUCCESS, 1].into_iter().for_each(|result| destroyed(pool)(result));
        assert!(was_destroyed(0x7301), "a second time nothing was there");
    }
}
