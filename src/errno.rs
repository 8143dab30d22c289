//! Preserving the thread's `errno`: hooks must not change what the program sees there.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "`errno` is behind a C function"))]

/// Restores `errno` when dropped.
#[derive(Debug)]
pub(crate) struct KeepErrno {
    #[cfg(target_os = "linux")]
    before: libc::c_int,
}

/// Keeps `errno` as it is now, until this is dropped.
#[cfg(all(feature = "preload", target_os = "linux"))]
pub fn keep_errno() -> impl Drop {
    KeepErrno::new()
}

impl KeepErrno {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            before: last_error(),
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: the function has no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the pointer is always valid on its thread.
        unsafe { errno.write(self.before) };
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn last_error() -> libc::c_int {
    // SAFETY: the function has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is always valid on its thread.
    unsafe { errno.read() }
}
