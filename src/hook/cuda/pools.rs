//! Memory pools that the program created (`cuMemPoolCreate`).

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::pointers::CallerPtr;
use super::table::HandleTable;
use super::types::{Handle, PoolLocation};
use crate::record::memory::OwnVec;

#[derive(Clone, Copy, Debug)]
struct OwnPool {
    /// The device's ordinal; `None` for host memory.
    device: Option<u32>,
    is_destroyed: bool,
}

static POOLS: HandleTable<u64, OwnPool> = HandleTable::new();

pub(super) fn created(out: CallerPtr<u64>, properties: CallerPtr<PoolLocation>) -> impl FnOnce(c_int) {
    move |result| {
        if let (Some(handle), Some(properties)) = (out.written(result), properties.written(result)) {
            POOLS.insert(handle, OwnPool { device: properties.ordinal(), is_destroyed: false });
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

/// Whether the handle may no longer be used.
pub(super) fn was_destroyed(handle: u64) -> bool {
    POOLS.get(handle).is_some_and(|pool| pool.is_destroyed)
}

/// The device of a pool that the program created.
pub(super) fn device_of(handle: u64) -> Option<u32> {
    POOLS.get(handle).filter(|pool| !pool.is_destroyed)?.device
}

pub(super) fn of_device(ordinal: u32) -> OwnVec<u64> {
    POOLS.pick(|handle, pool| (!pool.is_destroyed && pool.device == Some(ordinal)).then_some(handle))
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
