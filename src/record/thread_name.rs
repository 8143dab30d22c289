//! Thread names, recorded when a thread is first seen and when it ends: the kernel knows only the names of running
//! threads.
#![cfg_attr(all(target_os = "linux", not(miri)), expect(unsafe_code, reason = "prctl is a C function"))]

/// Longest name with its NUL byte (Linux: `TASK_COMM_LEN`).
pub(super) const LENGTH: usize = 16;

pub(super) fn text(name: [u8; LENGTH]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(LENGTH);
    String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn of_this_thread() -> [u8; LENGTH] {
    let mut name = [0u8; LENGTH];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn of_this_thread() -> [u8; LENGTH] {
    [0; LENGTH]
}
