//! C's allocator as programs call it: each function passes the request on to the next allocator and reports it.
#![expect(unsafe_code, reason = "C's allocator")]

use std::ffi::c_int;

use memtrace::malloc::{Moving, allocated, count_early, freeing};

use crate::{mode, next};

/// Reports a new block and returns it.
///
/// # Safety
/// `block` is null or a live block of the next allocator.
#[inline(always)]
unsafe fn report(block: *mut u8, asked: usize) -> *mut u8 {
    if !mode::is_reported() {
        // SAFETY: as the caller promises.
        return unsafe { not_reported(block, 1) };
    }
    // SAFETY: as the caller promises; null has no bytes.
    let given = unsafe { next::malloc_usable_size::call(block) };
    allocated(block, asked, given)
}

/// # Safety
/// `block` is a live block of the next allocator.
#[inline(always)]
unsafe fn report_free(block: *mut u8) {
    if !mode::is_reported() {
        // SAFETY: as the caller promises.
        unsafe { not_reported(block, -1) };
        return;
    }
    // SAFETY: as the caller promises.
    freeing(block, unsafe { next::malloc_usable_size::call(block) });
}

/// # Safety
/// `block` is null or a live block of the next allocator.
#[cold]
#[inline(never)]
unsafe extern "C" fn not_reported(block: *mut u8, sign: i64) -> *mut u8 {
    if mode::is_early() && !block.is_null() && next::is_glibc() {
        // SAFETY: as the caller promises.
        count_early(unsafe { next::malloc_usable_size::call(block) }, sign);
    }
    block
}

/// # Safety
/// As C's function of this name; so are the others.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::malloc::call(size) };
    // SAFETY: it is new.
    unsafe { report(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::calloc::call(count, size) };
    // SAFETY: it is new.
    unsafe { report(block, count.saturating_mul(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return mode::free_of_nothing();
    }
    // SAFETY: a block of the caller's. It is reported first: once the memory is back, another thread may get the address.
    unsafe { report_free(block) };
    // SAFETY: the request goes on unchanged.
    unsafe { next::free::call(block) }
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
    if size == 0 || !mode::is_reported() {
        // SAFETY: a block of the caller's.
        return unsafe { freed_and_made(block, size) };
    }
    // SAFETY: a block of the caller's.
    let moving = Moving::from(block, unsafe { next::malloc_usable_size::call(block) });
    // SAFETY: the request goes on unchanged.
    let moved = unsafe { next::realloc::call(block, size) };
    if moved.is_null() {
        moving.failed();
    }
    // SAFETY: it is new.
    unsafe { report(moved, size) }
}

/// A reallocation to 0 bytes, for which glibc returns null and other allocators a block; or one that is not reported.
///
/// # Safety
/// `block` is a live block of the next allocator.
#[cold]
unsafe fn freed_and_made(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { report_free(block) };
    // SAFETY: the request goes on unchanged.
    let made = unsafe { next::realloc::call(block, size) };
    let live = if made.is_null() && size > 0 { block } else { made };
    if !live.is_null() {
        // SAFETY: it is live.
        unsafe { report(live, size) };
    }
    made
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8 {
    // SAFETY: no memory has as many bytes as overflow makes of it, so that glibc refuses both alike.
    unsafe { realloc(block, count.saturating_mul(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::memalign::call(alignment, size) };
    // SAFETY: it is new.
    unsafe { report(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::aligned_alloc::call(alignment, size) };
    // SAFETY: it is new.
    unsafe { report(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut u8, alignment: usize, size: usize) -> c_int {
    // SAFETY: the request goes on unchanged.
    let outcome = unsafe { next::posix_memalign::call(to, alignment, size) };
    let block = match outcome {
        // SAFETY: the allocator has written there.
        0 => unsafe { to.read() },
        libc::ENOMEM => std::ptr::null_mut(),
        _ => return outcome,
    };
    // SAFETY: it is new.
    unsafe { report(block, size) };
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::valloc::call(size) };
    // SAFETY: it is new.
    unsafe { report(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut u8 {
    // SAFETY: the request goes on unchanged.
    let block = unsafe { next::pvalloc::call(size) };
    // SAFETY: it is new.
    unsafe { report(block, size) }
}
