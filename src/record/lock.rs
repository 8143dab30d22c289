//! Locks of the hooks.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::errno::KeepErrno;

/// Takes a lock. Nothing that is done under one of ours panics.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => wait(mutex),
    }
}

/// Waiting is a system call, which leaves its own error behind.
#[cold]
#[inline(never)]
fn wait<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let _errno = KeepErrno::new();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
