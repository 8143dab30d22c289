//! C's allocator as programs call it: each function passes the request on to glibc's and reports it.
#![expect(unsafe_code, reason = "C's allocator")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use memtrace::malloc::{Moving, allocated, freeing};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, size: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
    fn __libc_memalign(alignment: usize, size: usize) -> *mut u8;
    fn __libc_valloc(size: usize) -> *mut u8;
    fn __libc_pvalloc(size: usize) -> *mut u8;
}

/// Whether programs reach these functions: a program that has a `malloc` itself goes before every library.
pub(crate) fn is_called() -> bool {
    // SAFETY: the name is a string of C's.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    // A function that is not exported: its address is this library's in any case.
    object_of(malloc) == object_of(is_called as *const c_void)
}

fn object_of(address: *const c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place for the result is valid.
    let is_found = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a valid value of the type.
    let found = unsafe { found.assume_init() };
    is_found.then_some(found.dli_fbase.addr())
}

/// # Safety
/// As C's function of this name; so are the others.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { __libc_malloc(size) };
    // SAFETY: it is new.
    unsafe { allocated(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { __libc_calloc(count, size) };
    // SAFETY: it is new.
    unsafe { allocated(block, count.saturating_mul(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: a block of the caller's. It is reported first: once the memory is back, another thread may get the address.
    unsafe { freeing(block) };
    // SAFETY: the request goes on unchanged.
    unsafe { __libc_free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: *mut u8, _size: usize) {
    // SAFETY: the size says nothing that the block does not say.
    unsafe { free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: *mut u8, _alignment: usize, _size: usize) {
    // SAFETY: likewise.
    unsafe { free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        // SAFETY: a reallocation of nothing is an allocation.
        return unsafe { malloc(size) };
    }
    if size == 0 {
        // SAFETY: a block of the caller's, which glibc frees.
        unsafe { freeing(block) };
        // SAFETY: the request goes on unchanged.
        return unsafe { __libc_realloc(block, 0) };
    }
    // SAFETY: a block of the caller's.
    let moving = unsafe { Moving::from(block) };
    // SAFETY: the request goes on unchanged.
    let moved = unsafe { __libc_realloc(block, size) };
    if moved.is_null() {
        moving.failed();
    }
    // SAFETY: it is new.
    unsafe { allocated(moved, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8 {
    // SAFETY: no memory has as many bytes as overflow makes of it, so that glibc refuses both alike.
    unsafe { realloc(block, count.saturating_mul(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { __libc_memalign(alignment, size) };
    // SAFETY: it is new.
    unsafe { allocated(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut u8 {
    // SAFETY: glibc's two functions are one.
    unsafe { memalign(alignment, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_multiple_of(size_of::<usize>()) || !alignment.is_power_of_two() {
        return libc::EINVAL;
    }
    // SAFETY: a new request.
    let block = unsafe { memalign(alignment, size) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's place for the result.
    unsafe { to.write(block.cast()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { __libc_valloc(size) };
    // SAFETY: it is new.
    unsafe { allocated(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { __libc_pvalloc(size) };
    // SAFETY: it is new.
    unsafe { allocated(block, size) }
}
