//! `pthread_getattr_np`: it allocates under the thread's lock, for which the first stack of a thread waits as well.
#![expect(unsafe_code, reason = "a function of C")]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::OnceLock;

type Original = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

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
    let Some(original) = original() else { return libc::ENOSYS };
    // SAFETY: the caller's arguments, unchanged.
    unsafe { original(thread, attributes) }
}

fn original() -> Option<Original> {
    static FOUND: OnceLock<Option<Original>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name is a string of C's.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_getattr_np".as_ptr()) };
        // SAFETY: the C library's function of this name has this type; null is `None`.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Original>>(found) }
    })
}
