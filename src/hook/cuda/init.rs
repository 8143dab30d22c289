//! Callback at `cuInit`. It runs once, on the first thread that initializes the driver.
#![expect(unsafe_code, reason = "a function is kept as an address")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::driver;
use crate::errno::KeepErrno;
use crate::hook::interpose::note;
use crate::record::thread;

/// The callback; null if there is none, or once it has been called.
static ON_CUDA_START: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Number of the thread that is running the callback; 0 if no thread is. This is not a lock, because a forked child
/// would inherit the locked state.
static STARTER: AtomicU32 = AtomicU32::new(0);

/// How long other threads wait for the callback at most. The callback may itself wait for a lock that one of these
/// threads holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Called in a forked child, in which the thread that was running the callback does not exist.
pub(super) fn in_child() {
    STARTER.store(0, Ordering::Relaxed);
}

/// Sets the callback. Returns false if it will never run, because the program contains another copy of memtrace.
pub(crate) fn on_cuda_start(call: fn()) -> bool {
    ON_CUDA_START.store(call as *mut (), Ordering::Release);
    !note::program_has_its_own()
}

/// Called after `cuInit`. While one thread runs the callback, others wait, so that their first allocations are
/// recorded.
pub(super) fn cuda_started(result: c_int) {
    let _errno = KeepErrno::new();
    // Asked here on a thread of the program, because memtrace's own threads must not ask first.
    driver::is_simulated();
    if result != 0 {
        return;
    }
    if !ON_CUDA_START.load(Ordering::Acquire).is_null() {
        start_once();
    }
    wait_for_starter();
}

fn start_once() {
    let this_thread = thread::number().0;
    if STARTER.compare_exchange(0, this_thread, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let call = ON_CUDA_START.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !call.is_null() {
        // SAFETY: not null, and only functions of this type are stored.
        let call = unsafe { std::mem::transmute::<*mut (), fn()>(call) };
        let _ = std::panic::catch_unwind(call);
    }
    STARTER.store(0, Ordering::Release);
}

/// The callback may call `cuInit` itself, so its own thread does not wait.
fn wait_for_starter() {
    let is_other = || ![0, thread::number().0].contains(&STARTER.load(Ordering::Acquire));
    let began = Instant::now();
    while is_other() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
