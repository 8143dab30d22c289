//! Threads as the kernel knows them.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "system calls about threads"))]

/// Whether this process has a thread with this id of the kernel; true if the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn is_alive(thread: u32) -> bool {
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: no signal is sent.
    let outcome = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    outcome == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_alive(_thread: u32) -> bool {
    true
}
