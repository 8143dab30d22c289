//! What the libraries beside the simulated driver share. They reach the driver as NVIDIA's do: by name, at run
//! time.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Functions that exist, so that programs load, and answer `NOT_SUPPORTED`.
#[macro_export]
macro_rules! not_simulated {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
            $crate::say_once(&SAID, stringify!($name));
            NOT_SUPPORTED
        }
    )* };
}

/// Says on stderr that a function is not simulated.
pub fn say_once(said: &AtomicBool, name: &str) {
    // Relaxed: nothing else depends on who says it.
    if !said.swap(true, Ordering::Relaxed) {
        for part in ["memtrace-cusim: ", name, " is not simulated\n"] {
            // SAFETY: reads from a string.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    }
}

/// Functions that answer that all went well.
#[macro_export]
macro_rules! done {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            0
        }
    )* };
}

/// The address of a driver's function; none if there is no driver.
#[must_use]
pub fn driver(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the driver has no code that runs when it is loaded.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is one that `dlopen` gave; the name ends with a zero byte.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}
