//! C's allocator functions, interposed: each passes the request on to the next allocator and reports it.
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

/// Defines functions that only allocate. The expression after `of` says how many bytes they are asked for.
macro_rules! allocating {
    ($($name:ident($($argument:ident: usize),*) of $asked:expr;)*) => {
        $(
            /// # Safety
            /// The contract of C's function of this name. The same is true of the functions below.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: usize),*) -> *mut u8 {
                // SAFETY: the request is passed on unchanged.
                let block = unsafe { next::$name::call($($argument),*) };
                // SAFETY: the block is new.
                unsafe { report(block, $asked) }
            }
        )*
    };
}

allocating! {
    malloc(size: usize) of size;
    calloc(count: usize, size: usize) of count.saturating_mul(size);
    memalign(alignment: usize, size: usize) of size;
    aligned_alloc(alignment: usize, size: usize) of size;
    valloc(size: usize) of size;
    pvalloc(size: usize) of size;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return mode::free_of_nothing();
    }
    // SAFETY: the block is the caller's. It is reported first, because another thread may get the address once the
    // memory is back.
    unsafe { report_free(block) };
    // SAFETY: the request is passed on unchanged.
    unsafe { next::free::call(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: *mut u8, _size: usize) {
    // SAFETY: the contract is that of `free`. The size adds nothing to what the block says.
    unsafe { free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: *mut u8, _alignment: usize, _size: usize) {
    // SAFETY: the contract is that of `free`. The alignment and the size add nothing to what the block says.
    unsafe { free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        // SAFETY: a reallocation of null is an allocation.
        return unsafe { malloc(size) };
    }
    if size == 0 || !mode::is_reported() {
        // SAFETY: the block is the caller's.
        return unsafe { freed_and_made(block, size) };
    }
    // SAFETY: the block is the caller's.
    let moving = Moving::from(block, unsafe { next::malloc_usable_size::call(block) });
    // SAFETY: the request is passed on unchanged.
    let moved = unsafe { next::realloc::call(block, size) };
    if moved.is_null() {
        moving.failed();
    }
    // SAFETY: the block is new, or null.
    unsafe { report(moved, size) }
}

/// A reallocation that counts as a free and an allocation. Either it is to 0 bytes (glibc then returns null, other
/// allocators return a block), or it is not reported.
///
/// # Safety
/// `block` is a live block of the next allocator.
#[cold]
unsafe fn freed_and_made(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { report_free(block) };
    // SAFETY: the request is passed on unchanged.
    let made = unsafe { next::realloc::call(block, size) };
    let live = if made.is_null() && size > 0 { block } else { made };
    if !live.is_null() {
        // SAFETY: the block is live.
        unsafe { report(live, size) };
    }
    made
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8 {
    // SAFETY: if the product overflows, `usize::MAX` stands in for it, and glibc refuses both.
    unsafe { realloc(block, count.saturating_mul(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut u8, alignment: usize, size: usize) -> c_int {
    // SAFETY: the request is passed on unchanged.
    let outcome = unsafe { next::posix_memalign::call(to, alignment, size) };
    let block = match outcome {
        // SAFETY: the allocator has written the block's address there.
        0 => unsafe { to.read() },
        libc::ENOMEM => std::ptr::null_mut(),
        _ => return outcome,
    };
    // SAFETY: the block is new.
    unsafe { report(block, size) };
    outcome
}
