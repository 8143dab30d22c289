//! Descriptor tables of threads.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "system calls about descriptors"))]

#[cfg(target_os = "linux")]
pub(super) use linux::unshare;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    /// Gives this thread a table of its own without any descriptors. False if the system refuses. The program's table
    /// keeps its descriptors and its record locks (`fcntl`), which belong to the table.
    pub(in super::super) fn unshare() -> bool {
        let (all, unshare) = (libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
        // SAFETY: with this flag it closes nothing of the table that other threads use.
        if unsafe { libc::syscall(libc::SYS_close_range, 0, all, unshare) } == 0 {
            return true;
        }
        // SAFETY: from here on this thread has a copy of the table.
        let is_apart = unsafe { libc::unshare(libc::CLONE_FILES) } == 0;
        is_apart && close_all().is_ok()
    }

    /// Closes all descriptors of this thread's table, for Linux before 5.9. `/proc/self/fd` would list those of the
    /// main thread.
    fn close_all() -> io::Result<()> {
        let numbers = std::fs::read_dir("/proc/thread-self/fd")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect::<Vec<libc::c_int>>();
        for number in numbers {
            // SAFETY: the table is this thread's own, and nothing on this thread uses a descriptor yet. The folder's
            // descriptor is closed already.
            unsafe { libc::close(number) };
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unshare() -> bool {
    false
}
