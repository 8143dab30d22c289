//! A shared library with its own copy of memtrace, like an extension module or a preloaded library.
#![allow(unsafe_code, reason = "its functions are called through C")]

use memtrace::{Device, Session};

/// Starts a recording; null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn second_start() -> *mut Session {
    memtrace::start().map_or(std::ptr::null_mut(), |session| Box::into_raw(Box::new(session)))
}

/// Ends the recording. Returns the bytes of the first GPU at the peak, or -1 if this copy reports that it has no hooks.
///
/// # Safety
/// `session` comes from [`second_start`] and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn second_end(session: *mut Session) -> i64 {
    // SAFETY: the caller's promise.
    let session = unsafe { Box::from_raw(session) };
    let snapshot = session.snapshot();
    let peak = snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.peak.bytes as i64);
    if snapshot.health.cuda.state.is_active() { peak } else { -1 }
}

/// Returns 0 if this copy can measure, 1 if it reports why not.
#[unsafe(no_mangle)]
pub extern "C" fn second_measure() -> i32 {
    i32::from(memtrace::try_measure(|| ()).is_err_and(|error| error.to_string().contains("another copy of memtrace")))
}
