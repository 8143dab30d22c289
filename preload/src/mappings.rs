//! Memory that the program maps itself: each function passes the request on and reports it.
#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_int;

use memtrace::mappings::{Remapping, mapped, unmapping};

use crate::{mode, next};

/// # Safety
/// The contract of C's function of this name. The same is true of the functions below.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(at: *mut u8, size: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut u8 {
    // SAFETY: the caller's arguments are passed on unchanged.
    let found = unsafe { next::mmap::call(at, size, access, flags, file, from) };
    if mode::is_reported() { mapped(found, size) } else { found }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(at: *mut u8, size: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut u8 {
    // SAFETY: the caller's arguments are passed on unchanged.
    let found = unsafe { next::mmap64::call(at, size, access, flags, file, from) };
    if mode::is_reported() { mapped(found, size) } else { found }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut u8, size: usize) -> c_int {
    if mode::is_reported() {
        unmapping(at, size);
    }
    // SAFETY: the caller's arguments are passed on unchanged.
    unsafe { next::munmap::call(at, size) }
}

/// The caller passes the last argument only if the flags say so. Otherwise nobody reads its value.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(old: *mut u8, old_size: usize, size: usize, flags: c_int, new: *mut u8) -> *mut u8 {
    let remapping = mode::is_reported().then(|| Remapping::from(old, old_size));
    // SAFETY: the caller's arguments are passed on unchanged.
    let moved = unsafe { next::mremap::call(old, old_size, size, flags, new) };
    if let Some(remapping) = remapping {
        remapping.to(moved, size);
    }
    moved
}
