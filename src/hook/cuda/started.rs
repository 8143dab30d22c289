//! The driver was started: what waits for that is called once, on the thread that started it.
#![expect(unsafe_code, reason = "a function is kept as an address")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::errno::KeepErrno;
use crate::hook::interpose::note;
use crate::record::thread;

/// That thread was the parent's.
pub(super) fn in_child() {
    STARTER.store(0, Ordering::Relaxed);
}

/// To be called once the driver has been started; null once it was.
static ON_CUDA_START: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The number of the thread on which that is being called; 0 if it is not. Not a lock: a forked child would inherit it.
static STARTER: AtomicU32 = AtomicU32::new(0);

/// Others wait no longer than this for the starter: it might be waiting for what one of them holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// False if that will not be seen, because the program has memtrace in it.
pub(crate) fn on_cuda_start(call: fn()) -> bool {
    ON_CUDA_START.store(call as *mut (), Ordering::Release);
    !note::program_has_its_own()
}

/// After `cuInit`. Who comes while another thread has the recording begun waits: what it allocates next is to be recorded.
pub(super) fn cuda_started(result: c_int) {
    if result != 0 {
        return;
    }
    let _errno = KeepErrno::new();
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
        // SAFETY: only functions of this type are stored there.
        let call = unsafe { std::mem::transmute::<*mut (), fn()>(call) };
        let _ = std::panic::catch_unwind(call);
    }
    STARTER.store(0, Ordering::Release);
}

/// The starter itself may come here out of its call.
fn wait_for_starter() {
    let is_other = || ![0, thread::number().0].contains(&STARTER.load(Ordering::Acquire));
    let begun = Instant::now();
    while is_other() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
