//! C's allocator: what the functions that a preloaded library puts before `malloc` and `free` report to the recorder.
//!
//! A free does not say the size, so blocks are counted by the size that the allocator gave (`malloc_usable_size`, which both
//! calls know), and recorded, from the threshold on, with the size that was asked for.
#![expect(unsafe_code, reason = "asks the allocator for the size of a block")]

use super::heap_refusal;
use crate::errno::KeepErrno;
use crate::record::heap::{
    HeapFree, on_free, on_unwatched_alloc, on_unwatched_dealloc, on_watched_dealloc, on_watched_malloc, undo_free,
};

/// The size that the allocator gave.
///
/// # Safety
/// `block` is a live block of the allocator.
#[inline]
unsafe fn given(block: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { libc::malloc_usable_size(block.cast()) }
}

/// Reports a new block of `asked` bytes and returns it; null is a request that was refused.
///
/// # Safety
/// `block` is null or a live block of the allocator.
#[inline]
pub unsafe fn allocated(block: *mut u8, asked: usize) -> *mut u8 {
    if block.is_null() {
        return refused(asked);
    }
    // SAFETY: as the caller promises.
    let given = unsafe { given(block) };
    if on_unwatched_alloc(given) { block } else { on_watched_malloc(block, asked, given) }
}

/// Out of line, so that the last step of `malloc` is a jump and it has no frame in the stack that is taken.
#[cold]
extern "C" fn refused(asked: usize) -> *mut u8 {
    let _errno = KeepErrno::new();
    heap_refusal::refused(asked);
    std::ptr::null_mut()
}

/// Reports that a block is about to be freed.
///
/// # Safety
/// `block` is a live block of the allocator.
#[inline]
pub unsafe fn freeing(block: *mut u8) {
    // SAFETY: as the caller promises.
    let given = unsafe { given(block) };
    if !on_unwatched_dealloc(given) {
        let _errno = KeepErrno::new();
        on_watched_dealloc(block.addr(), given);
    }
}

/// A block that is being reallocated.
#[derive(Debug)]
pub struct Moving {
    address: usize,
    given: usize,
    account: HeapFree,
}

impl Moving {
    /// Reports that a block is about to be reallocated: another thread may get its address.
    ///
    /// # Safety
    /// `block` is a live block of the allocator.
    pub unsafe fn from(block: *mut u8) -> Self {
        let _errno = KeepErrno::new();
        // SAFETY: as the caller promises.
        let (address, given) = (block.addr(), unsafe { given(block) });
        Self { address, given, account: on_free(address, given) }
    }

    /// The reallocation failed: the block is where it was.
    pub fn failed(self) {
        let _errno = KeepErrno::new();
        undo_free(self.address, self.given, self.account);
    }
}
