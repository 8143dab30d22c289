//! What the loader is asked, leaving no trace of it to the program.
#![expect(unsafe_code, reason = "the loader is asked in C")]

use std::ffi::{CStr, c_void};

/// A handle of an object that is loaded; loads none.
pub(in crate::hook) fn opened(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte; nothing is loaded, so no code of others runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        forget_error();
        return None;
    }
    Some(handle)
}

/// A function of the C library.
#[derive(Clone, Copy, Debug)]
pub(in crate::hook) struct Found {
    pub(in crate::hook) address: usize,
    /// Another library's of the same name comes before it.
    pub(in crate::hook) is_interposed: bool,
}

/// The function of this name in the first of the libraries that has it.
pub(in crate::hook) fn function_of(libraries: &[&CStr], name: &CStr) -> Option<Found> {
    // SAFETY: the handle is a live one or stands for all objects, and the name ends with a zero byte.
    let find = |handle| unsafe { libc::dlsym(handle, name.as_ptr()) };
    let libraries = libraries.iter().filter_map(|library| opened(library));
    let found = libraries.map(find).find(|address| !address.is_null());
    let everybodys = find(libc::RTLD_DEFAULT);
    forget_error();
    let is_interposed = |found| !everybodys.is_null() && everybodys != found;
    found.map(|found| Found { address: found.expose_provenance(), is_interposed: is_interposed(found) })
}

/// What failed was our question: `dlerror` must not tell the program.
pub(in crate::hook) fn forget_error() {
    // SAFETY: gives the thread's last error, and forgets it.
    unsafe { libc::dlerror() };
}

/// Keeps the object that an address lies in loaded to the process's end, if it is a library.
pub(in crate::hook) fn pin(address: *const c_void) {
    // SAFETY: all its fields may be zero.
    let mut object = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: the place for the answer is ours; any address may be asked about.
    let found = unsafe { libc::dladdr(address, &mut object) };
    if found != 0 && !object.dli_fname.is_null() {
        // SAFETY: the loader's name is a C string; what it names is loaded already.
        unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
        forget_error();
    }
}
