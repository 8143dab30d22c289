//! `driver-probe LIBRARY ARGUMENTS…` loads probe.c, built as a library, and calls its function `probe` with the arguments. The
//! hooks are in place because the program contains memtrace; a recording is under way, too.
#![expect(unsafe_code, reason = "calls a function of a C library")]

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

type Probe = unsafe extern "C" fn(c_int, *const *const c_char) -> c_int;

fn main() {
    let _session = memtrace::start().expect("nothing else records");
    let arguments: Vec<CString> =
        std::env::args_os().skip(1).map(|it| CString::new(it.into_vec()).expect("an argument has no zero")).collect();
    let library = arguments.first().expect("the first argument is the library");
    // SAFETY: the library runs no code when it is loaded.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "the library can be loaded");
    // SAFETY: the handle is open, the name a C string.
    let probe = unsafe { libc::dlsym(library, c"probe".as_ptr()) };
    assert!(!probe.is_null(), "the library has the function");
    // SAFETY: this is its type.
    let probe = unsafe { std::mem::transmute::<*mut libc::c_void, Probe>(probe) };
    let pointers: Vec<*const c_char> = arguments.iter().map(|it| it.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: as the arguments of C's `main`.
    let status = unsafe { probe(arguments.len() as c_int, pointers.as_ptr()) };
    std::process::exit(status);
}
