//! Threads of memtrace's own: their memory is its own, and the program's signals go elsewhere.
#![cfg_attr(unix, expect(unsafe_code, reason = "signal masks are set by C functions"))]

use std::io;
use std::thread::{Builder, Thread};

use crate::record::guard;

/// Starts a thread that is never joined.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let _own = guard::own_work();
    let run = move || {
        guard::set(guard::OWN, true);
        block_signals();
        // A panic would be a defect of ours, and must stay with us.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    };
    let handle = Builder::new().name(name.to_owned()).stack_size(1 << 20).spawn(run)?;
    Ok(handle.thread().clone())
}

#[cfg(unix)]
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it fills in the set that it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled in; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}

#[cfg(not(unix))]
fn block_signals() {}
