//! C's allocator. A preloaded library interposes `malloc` and `free`, and its functions report to the recorder through
//! this module.
//!
//! `free` does not get the block's size. So blocks are counted by the size that the allocator gave them, which is
//! known at the allocation and at the free (`malloc_usable_size`). Blocks from the threshold on are recorded, and the
//! recording has their requested size.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::heap_refusal;
use crate::errno::KeepErrno;
use crate::record::heap::{
    HeapFree, on_free, on_unwatched_alloc, on_unwatched_dealloc, on_watched_dealloc, on_watched_malloc, undo_free,
};
pub use crate::record::own_heap::System;
use crate::record::untraced;

/// Set by [`stand_back`], before the library's other constructors run.
static STANDS_BACK: AtomicBool = AtomicBool::new(false);

/// Makes this copy of memtrace do nothing in this process.
pub fn stand_back() {
    STANDS_BACK.store(true, Relaxed);
}

/// Whether [`stand_back`] was called.
pub fn stands_back() -> bool {
    STANDS_BACK.load(Relaxed)
}

/// Counts a block (`sign` 1) or a free (−1) before anything can be recorded. Uses no thread-local variable.
pub fn count_early(given: usize, sign: i64) {
    untraced::add_early(given as u64, sign);
}

/// Reports a new block and returns it. The program requested `asked` bytes, and the allocator gave `given` bytes. A
/// null block means that the allocator refused the request.
#[inline]
pub fn allocated(block: *mut u8, asked: usize, given: usize) -> *mut u8 {
    if block.is_null() {
        return refused(asked);
    }
    if on_unwatched_alloc(given) { block } else { on_watched_malloc(block, asked, given) }
}

/// Not inlined, so that the last step of `malloc` is a jump, and `malloc` has no frame in the recorded stack.
#[cold]
extern "C" fn refused(asked: usize) -> *mut u8 {
    let _errno = KeepErrno::new();
    heap_refusal::refused(asked);
    std::ptr::null_mut()
}

/// Reports that a block is about to be freed.
#[inline]
pub fn freeing(block: *mut u8, given: usize) {
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
    /// Reports that a block is about to be reallocated. Once it is, another thread may get the old address.
    pub fn from(block: *mut u8, given: usize) -> Self {
        let _errno = KeepErrno::new();
        let address = block.addr();
        Self { address, given, account: on_free(address, given) }
    }

    /// Reports that the reallocation failed and the block is where it was.
    pub fn failed(self) {
        let _errno = KeepErrno::new();
        undo_free(self.address, self.given, self.account);
    }
}
