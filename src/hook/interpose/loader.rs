//! Queries to the dynamic loader (`dlopen`, `dlsym`, `dladdr`). They leave no error for the program's `dlerror`.
#![expect(unsafe_code, reason = "the loader is called in C")]

use std::ffi::{CStr, c_void};

/// A handle to an object that is already loaded. Loads nothing.
pub(in crate::hook) fn opened(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte. With `RTLD_NOLOAD` no foreign code runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        forget_error();
        return None;
    }
    Some(handle)
}

#[derive(Clone, Copy, Debug)]
pub(in crate::hook) struct Found {
    pub(in crate::hook) address: usize,
    /// Another library that defines this name comes earlier in the search order.
    pub(in crate::hook) is_interposed: bool,
}

/// Looks up a function in the first of these libraries that has it.
pub(in crate::hook) fn function_of(libraries: &[&CStr], name: &CStr) -> Option<Found> {
    // SAFETY: the handle is live or `RTLD_DEFAULT`, and the name ends with a zero byte.
    let find = |handle| unsafe { libc::dlsym(handle, name.as_ptr()) };
    let libraries = libraries.iter().filter_map(|library| opened(library));
    let found = libraries.map(find).find(|address| !address.is_null());
    let default = find(libc::RTLD_DEFAULT);
    forget_error();
    let is_interposed = |found| !default.is_null() && default != found;
    found.map(|found| Found { address: found.expose_provenance(), is_interposed: is_interposed(found) })
}

/// Clears the error of memtrace's own query, so that the program's `dlerror` does not return it.
pub(in crate::hook) fn forget_error() {
    // SAFETY: returns and clears the thread's last error.
    unsafe { libc::dlerror() };
}

/// Keeps the library that contains an address loaded until the process ends.
pub(in crate::hook) fn pin(address: *const c_void) {
    // SAFETY: every field may be zero.
    let mut object = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: writes to a local variable; any address is a valid argument.
    let found = unsafe { libc::dladdr(address, &mut object) };
    if found != 0 && !object.dli_fname.is_null() {
        // SAFETY: the loader's name is a C string. The object is already loaded, so no foreign code runs.
        unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
        forget_error();
    }
}
