//! A forked child must not touch locks that another thread of the parent may have held: from the
//! first use of one on, memtrace is off in children of this process.
#![expect(unsafe_code, reason = "pthread_atfork is a C function")]

use std::sync::Once;

/// To be called before the first of our locks is taken.
#[cfg(unix)]
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to atomics and to a thread-local cell without destructor.
        // A failure (no memory) leaves the process as it would be without memtrace.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(not(unix))]
pub(crate) fn watch() {}

#[cfg(unix)]
extern "C" fn in_child() {
    super::recorder::abandon_after_fork();
}
