//! A library with a copy of memtrace of its own, as an extension module or a preloaded library has one.
#![allow(unsafe_code, reason = "its functions are called through C")]

use memtrace::{Device, Session};

/// Begins to record; null if that fails.
#[unsafe(no_mangle)]
pub extern "C" fn second_start() -> *mut Session {
    memtrace::start().map_or(std::ptr::null_mut(), |session| Box::into_raw(Box::new(session)))
}

/// Ends the recording; gives how many bytes of the first GPU it has seen at the peak, or -1 if it says that it
/// has no hooks.
///
/// # Safety
/// `session` is from [`second_start`], and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn second_end(session: *mut Session) -> i64 {
    // SAFETY: the caller says so.
    let session = unsafe { Box::from_raw(session) };
    let snapshot = session.snapshot();
    let peak = snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.peak.bytes as i64);
    if snapshot.health.cuda.state.is_active() { peak } else { -1 }
}

/// 0 if it can measure, 1 if it says why not.
#[unsafe(no_mangle)]
pub extern "C" fn second_measure() -> i32 {
    i32::from(memtrace::try_measure(|| ()).is_err_and(|error| error.to_string().contains("another copy of memtrace")))
}
