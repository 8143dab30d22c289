//! Code shared by the stand-in libraries. They find the driver's functions by name at run time, as NVIDIA's do.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

pub mod signatures;

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Defines functions that only return `NOT_SUPPORTED`, so that programs load.
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

/// Prints once to stderr that a function is not simulated.
pub fn say_once(said: &AtomicBool, name: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        for part in ["memtrace-cusim: ", name, " is not simulated\n"] {
            // SAFETY: reads from a string.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    }
}

/// Defines functions that do nothing and return success.
#[macro_export]
macro_rules! done {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            0
        }
    )* };
}

/// An output pointer of a C function, possibly null.
#[repr(transparent)]
pub struct OutArg<T>(*mut T);

impl<T> OutArg<T> {
    /// Writes a value and returns success, or `error` if the pointer is null.
    pub fn set(self, value: T, error: u32) -> u32 {
        let Some(output) = NonNull::new(self.0) else { return error };
        // SAFETY: the caller of the C function passes a pointer to a `T` that it owns.
        unsafe { output.write(value) };
        0
    }
}

/// A typed function of the driver: `driver_function!(c"cuMemFree_v2": fn(u64))` is an `Option`, `None` without a
/// driver.
#[macro_export]
macro_rules! driver_function {
    ($name:literal: fn($($type:ty),*)) => {{
        static CACHE: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        $crate::driver(&CACHE, $name).map(|function| {
            // SAFETY: the driver's function has this type.
            unsafe { std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, extern "C" fn($($type),*) -> u32>(function) }
        })
    }};
}

/// The address of a driver function, kept in `cache`; `None` without a driver.
pub fn driver(cache: &AtomicPtr<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // Relaxed: every thread finds the same function.
    if let Some(function) = NonNull::new(cache.load(Ordering::Relaxed)) {
        return Some(function);
    }
    // SAFETY: the driver runs no code when it is loaded.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is open; the name ends with a zero byte.
    let function = NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })?;
    cache.store(function.as_ptr(), Ordering::Relaxed);
    Some(function)
}

/// A kernel of a stand-in library, which gets pointers and does nothing.
pub struct EmptyKernel {
    name: &'static str,
    /// 0 until it is loaded.
    handle: AtomicU64,
}

/// More pointers than any function here passes.
const MOST_POINTERS: usize = 8;

impl EmptyKernel {
    /// A kernel with this name.
    pub const fn named(name: &'static str) -> Self {
        Self { name, handle: AtomicU64::new(0) }
    }

    /// Launches it as the real library launches its kernels: through the driver, with these pointers as arguments.
    /// Returns 0, or the driver's error. A null pointer is passed, too.
    pub fn launch(&self, stream: u64, pointers: &[u64]) -> u32 {
        let Some(kernel) = self.loaded(pointers.len().min(MOST_POINTERS)) else { return 0 };
        let launch = driver_function!(
            c"cuLaunchKernel": fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *const *const u64, usize)
        );
        let Some(launch) = launch else { return 0 };
        let mut arguments = [std::ptr::null(); MOST_POINTERS];
        arguments.iter_mut().zip(pointers).for_each(|(argument, pointer)| *argument = pointer);
        launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_ptr(), 0)
    }

    fn loaded(&self, pointers: usize) -> Option<u64> {
        // Relaxed: a kernel that two threads load at once is loaded twice.
        let known = self.handle.load(Ordering::Relaxed);
        if known != 0 {
            return Some(known);
        }
        let load =
            driver_function!(c"cuLibraryLoadData": fn(*mut u64, *const i8, usize, usize, u32, usize, usize, u32))?;
        let get = driver_function!(c"cuLibraryGetKernel": fn(*mut u64, u64, *const i8))?;
        let parameters: Vec<String> = (0..pointers).map(|at| format!(".param .u64 pointer_{at}")).collect();
        let parameters = parameters.join(", ");
        let head = ".version 9.0\n.target sm_80\n.address_size 64\n";
        let ptx = CString::new(format!("{head}.visible .entry {}({parameters})\n{{ ret; }}\n", self.name)).ok()?;
        let name = CString::new(self.name).ok()?;
        let (mut library, mut kernel) = (0, 0);
        let is_loaded = load(&mut library, ptx.as_ptr().cast(), 0, 0, 0, 0, 0, 0) == 0
            && get(&mut kernel, library, name.as_ptr().cast()) == 0;
        self.handle.store(kernel, Ordering::Relaxed);
        is_loaded.then_some(kernel)
    }
}
