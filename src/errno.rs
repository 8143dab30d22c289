//! The thread's `errno` is the program's: what memtrace does besides leaves it as it was.

#[cfg(target_os = "linux")]
pub(crate) use linux::last_error;

/// While this lives, nothing changes it.
#[derive(Debug)]
pub(crate) struct KeepErrno {
    #[cfg(target_os = "linux")]
    before: libc::c_int,
}

#[cfg(not(target_os = "linux"))]
impl KeepErrno {
    pub(crate) fn new() -> Self {
        Self {}
    }
}

#[cfg(target_os = "linux")]
mod linux {
    #![expect(unsafe_code, reason = "the C library says where it is")]

    use super::KeepErrno;

    impl KeepErrno {
        pub(crate) fn new() -> Self {
            Self { before: last_error() }
        }
    }

    impl Drop for KeepErrno {
        fn drop(&mut self) {
            // SAFETY: this thread's own place.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: it is always valid for its thread.
            unsafe { place.write(self.before) };
        }
    }

    /// What the last call left there.
    pub(crate) fn last_error() -> libc::c_int {
        // SAFETY: this thread's own place.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: it is always valid for its thread.
        unsafe { place.read() }
    }
}
