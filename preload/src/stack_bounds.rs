//! `pthread_getattr_np`: it allocates under the thread's lock, for which the first stack of a thread waits as well.
#![expect(unsafe_code, reason = "a function of C")]

use std::cell::Cell;
use std::ffi::c_int;

use crate::next;

thread_local! {
    /// The first stack of a thread calls this function itself.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// # Safety
/// As C's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
    if crate::may_record() && !IS_INSIDE.replace(true) {
        // Later stacks of this thread need no lock.
        memtrace::take_stack();
        IS_INSIDE.set(false);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::pthread_getattr_np::call(thread, attributes) }
}
