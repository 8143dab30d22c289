//! Stand-in for the CUDA runtime (`libcudart.so`, as of CUDA 13; enough of CUDA 12 for PyTorch): memory, streams, events and graphs
//! through the driver, launches without effect.
//!
//! The device is that of the current context. A thread without a context gets the first device's.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

mod device;
mod launch;
mod memory;
mod stream;

use std::cell::Cell;
use std::ffi::c_char;

use memtrace_cusim_libraries::{OutArg, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cudart.rs"));

const NOT_SUPPORTED: u32 = 801;
const INVALID_VALUE: u32 = 1;
const NO_DRIVER: u32 = 35;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Defines functions that call a driver function in a context, with their own arguments or with those after `with`.
macro_rules! through_the_driver {
    ($(fn $name:ident $args:tt = $driver:literal $(with $given:tt)?;)*) => { $($crate::function! { $name $args $driver $($given)? })* };
}

macro_rules! function {
    ($name:ident ($($arg:ident: $type:ty),*) $driver:literal) => {
        $crate::function! { $name ($($arg: $type),*) $driver ($($arg => $type),*) }
    };
    ($name:ident ($($arg:ident: $type:ty),*) $driver:literal ($($given:expr => $given_type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            let Some(function) = memtrace_cusim_libraries::driver_function!($driver: fn($($given_type),*)) else {
                return $crate::NO_DRIVER;
            };
            $crate::device::ensure_context();
            $crate::remember(function($($given),*))
        }
    };
}

pub(crate) use {function, through_the_driver};

fn remember(code: u32) -> u32 {
    if code != 0 {
        LAST_ERROR.set(code);
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> u32 {
    LAST_ERROR.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> u32 {
    LAST_ERROR.get()
}

/// The driver's text for a code, because most of the runtime's errors have the driver's numbers.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    words(code, driver_function!(c"cuGetErrorString": fn(u32, *mut *const c_char)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    words(code, driver_function!(c"cuGetErrorName": fn(u32, *mut *const c_char)))
}

fn words(code: u32, of: Option<extern "C" fn(u32, *mut *const c_char) -> u32>) -> *const c_char {
    let mut text = std::ptr::null();
    match of {
        Some(of) if of(code, &mut text) == 0 => text,
        _ => c"an error of the simulated runtime".as_ptr(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(version: OutArg<i32>) -> u32 {
    version.set(RUNTIME_VERSION, INVALID_VALUE)
}

const RUNTIME_VERSION: i32 = 13_000;
