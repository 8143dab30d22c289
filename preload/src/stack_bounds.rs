//! `pthread_getattr_np`. It allocates under a thread's lock, and taking the thread's first stack waits for it.
#![expect(unsafe_code, reason = "a function of C")]

use std::cell::Cell;
use std::ffi::c_int;

use crate::next;

thread_local! {
    /// True while the thread's first stack is taken. Taking it calls `pthread_getattr_np`, too.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// # Safety
/// The contract of C's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
    if crate::may_record() && !IS_INSIDE.replace(true) {
        // The first stack is taken here, before the lock. Later stacks of this thread need no lock.
        memtrace::take_stack();
        IS_INSIDE.set(false);
    }
    // SAFETY: the caller's arguments are passed on unchanged.
    unsafe { next::pthread_getattr_np::call(thread, attributes) }
}
