// What the libraries beside the driver share. They reach the driver as NVIDIA's do: by name, at run time.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! not_simulated {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            static SAID: AtomicBool = AtomicBool::new(false);
            refuse(&SAID, stringify!($name))
        }
    )* };
}

fn refuse(said: &AtomicBool, name: &str) -> u32 {
    // Relaxed: nothing else depends on who says it.
    if !said.swap(true, Ordering::Relaxed) {
        for part in ["memtrace-cusim: ", name, " is not simulated\n"] {
            // SAFETY: reads from a string.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    }
    NOT_SUPPORTED
}

/// The address of a driver's function; none if there is no driver.
#[allow(dead_code, reason = "not every library needs the driver")]
fn driver(name: &CStr) -> Option<std::ptr::NonNull<libc::c_void>> {
    // SAFETY: the driver has no code that runs when it is loaded.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is one that `dlopen` gave; the name ends with a zero byte.
    std::ptr::NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}
