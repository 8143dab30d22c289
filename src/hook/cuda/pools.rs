//! Pools that the program made for itself.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::Mutex;

use super::driver::SUCCESS;
use super::words::{Handle, LocationOfPool};
use crate::record::fork;
use crate::record::lock::lock;
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
    let _no_fork = fork::no_fork();
    act(&mut lock(&POOLS))
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

/// `cuMemPoolDestroy`: what is to be done after it. The driver is not asked about the pool meanwhile; afterwards
/// its handle may be another's.
pub(super) fn destroyed(pool: Handle) -> impl FnOnce(c_int) {
    let handle = pool.addr() as u64;
    let was_there = mark(handle, true);
    move |result| {
        if result != SUCCESS && was_there {
            mark(handle, false);
        }
    }
}

/// True if it was marked otherwise before.
fn mark(handle: u64, is_gone: bool) -> bool {
    with(|pools| {
        let pool = pools.iter_mut().find(|pool| pool.handle == handle && pool.is_gone != is_gone);
        pool.is_some_and(|pool| {
            pool.is_gone = is_gone;
            true
        })
    })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_pool_that_comes_again_at_once_is_another() {
        let mut pool: Handle = std::ptr::without_provenance_mut(0x7301);
        let place = LocationOfPool::on_device(31);
        created(&mut pool, &place)(SUCCESS);
        destroyed(pool)(1);
        assert!(!was_destroyed(0x7301) && of_device(31).as_slice() == [0x7301]);
        let done = destroyed(pool);
        assert!(was_destroyed(0x7301) && of_device(31).is_empty());
        created(&mut pool, &place)(SUCCESS);
        done(SUCCESS);
        assert!(!was_destroyed(0x7301));
        [SUCCESS, 1].into_iter().for_each(|result| destroyed(pool)(result));
        assert!(was_destroyed(0x7301), "a second time nothing was there");
    }

    #[test]
    fn a_child_is_not_forked_while_another_thread_looks_at_pools() {
        crate::record::fork::watch();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && !was_destroyed(0x7302) {
                    std::hint::spin_loop();
                }
            });
            let ended_well = |_| {
                // SAFETY: the child looks at pools and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(5) };
                    // SAFETY: ends the process without anything of the parent's.
                    unsafe { libc::_exit(was_destroyed(0x7302).into()) };
                }
                let mut status = -1;
                // SAFETY: waits for our child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                status == 0
            };
            let all = (0..300).all(ended_well);
            done.store(true, Ordering::Relaxed);
            assert!(all, "a child hung");
        });
    }
}
