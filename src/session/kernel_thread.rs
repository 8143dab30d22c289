//! Threads as the kernel knows them.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "system calls about threads"))]

#[cfg(target_os = "linux")]
pub(super) use linux::{ThreadId, is_alive, this_thread};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    pub(in crate::session) type ThreadId = libc::pid_t;

    pub(in crate::session) fn this_thread() -> ThreadId {
        // SAFETY: no preconditions.
        unsafe { libc::gettid() }
    }

    /// Whether this process has such a thread; true if the system does not say.
    pub(in crate::session) fn is_alive(thread: ThreadId) -> bool {
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: no signal is sent.
        let outcome = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
        outcome == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) type ThreadId = ();

#[cfg(not(target_os = "linux"))]
pub(super) fn this_thread() -> ThreadId {}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_alive(_thread: ThreadId) -> bool {
    true
}
