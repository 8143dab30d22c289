//! Descriptor tables of threads.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "system calls about descriptors and threads"))]

#[cfg(target_os = "linux")]
pub(in crate::session) use linux::{ThreadId, is_alive, this_thread, unshare};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    pub(in crate::session) type ThreadId = libc::pid_t;

    pub(in crate::session) fn this_thread() -> ThreadId {
        // SAFETY: no preconditions.
        unsafe { libc::gettid() }
    }

    /// Whether this process has such a thread. It does if the system does not say.
    pub(in crate::session) fn is_alive(thread: ThreadId) -> bool {
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: no signal is sent.
        let outcome = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
        outcome == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }

    /// Gives this thread a table of its own, without a descriptor in it. False if the system refuses. The program's table stays as
    /// it is, with its record locks (`fcntl`), which belong to the table.
    pub(in crate::session) fn unshare() -> bool {
        let (all, unshare) = (libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
        // SAFETY: with this flag it closes nothing of the table that other threads use.
        if unsafe { libc::syscall(libc::SYS_close_range, 0, all, unshare) } == 0 {
            return true;
        }
        // SAFETY: from here on this thread has a copy of the table.
        let is_apart = unsafe { libc::unshare(libc::CLONE_FILES) } == 0;
        is_apart && close_all().is_ok()
    }

    /// Before Linux 5.9. `/proc/self/fd` would be the main thread's.
    fn close_all() -> io::Result<()> {
        let numbers = std::fs::read_dir("/proc/thread-self/fd")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect::<Vec<libc::c_int>>();
        for number in numbers {
            // SAFETY: the table is this thread's own, and nothing on this thread uses a descriptor yet. The folder's is
            // closed already.
            unsafe { libc::close(number) };
        }
        Ok(())
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

#[cfg(not(target_os = "linux"))]
pub(super) fn unshare() -> bool {
    false
}
