//! Global allocator wrapper: reports every heap request to the recorder and forwards it to an inner allocator.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};

use super::heap_refusal;
use crate::record::heap::{
    on_free, on_unwatched_alloc, on_unwatched_dealloc, on_watched_alloc, on_watched_dealloc, undo_free,
};

/// Global allocator wrapper that reports the memory of CPU tensors to memtrace and forwards every request.
///
/// ```
/// #[global_allocator]
/// static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # fn main() {}
/// ```
///
/// # What it costs
/// Without a recording or a measurement, each request costs two thread-local reads, one relaxed load and one addition
/// (from the 64th thread on, an uncontended atomic addition). The live bytes of *all* blocks are always counted, so a
/// recording can state exactly how many bytes were live before it began.
///
/// # What it sees
/// A reallocation counts as a free, followed by an allocation at the line that reallocates. Memory that C libraries
/// allocate with `malloc`, and mapped files, do not pass through this allocator and are not seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A = System> {
    inner: A,
}

impl Alloc<System> {
    /// Wraps the system allocator, Rust's default.
    pub const fn system() -> Self {
        Self { inner: System }
    }
}

/// Whether the system allocator serves the request by `malloc` alone. For other layouts it needs a variable in the
/// stack memory of the calling function. That prevents the tail call to [`on_watched_alloc`], so the calling function
/// would be a frame of the recorded stack.
#[inline(always)]
const fn is_common(layout: Layout) -> bool {
    layout.align() <= 16 && layout.align() <= layout.size()
}

impl<A: GlobalAlloc> Alloc<A> {
    /// # Safety
    /// The contract is that of [`GlobalAlloc::alloc`].
    #[inline(never)]
    unsafe fn alloc_aligned(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        seen(unsafe { self.inner.alloc(layout) }, layout.size())
    }

    /// # Safety
    /// The contract is that of [`GlobalAlloc::alloc_zeroed`].
    #[inline(never)]
    unsafe fn alloc_zeroed_aligned(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        seen(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
    }

    /// Frees a block whose free may be observed. This is a separate function, so that other frees save no registers.
    ///
    /// # Safety
    /// The contract is that of [`GlobalAlloc::dealloc`].
    #[inline(never)]
    unsafe fn dealloc_watched(&self, block: *mut u8, layout: Layout) {
        on_watched_dealloc(block.addr(), layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { self.inner.dealloc(block, layout) }
    }
}

impl<A> Alloc<A> {
    /// Wraps another allocator, such as jemalloc or mimalloc.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: every request goes to `inner` unchanged, and its result is returned unchanged. The bookkeeping neither
// unwinds nor touches the block.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_common(layout) {
            // SAFETY: the caller keeps `alloc`'s contract.
            seen(unsafe { self.inner.alloc(layout) }, layout.size())
        } else {
            // SAFETY: the caller keeps `alloc`'s contract.
            unsafe { self.alloc_aligned(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_common(layout) {
            // SAFETY: the caller keeps `alloc_zeroed`'s contract.
            seen(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
        } else {
            // SAFETY: the caller keeps `alloc_zeroed`'s contract.
            unsafe { self.alloc_zeroed_aligned(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // The free is reported first: once the memory is returned, another thread may receive this address.
        if on_unwatched_dealloc(layout.size()) {
            // SAFETY: the caller keeps `dealloc`'s contract.
            unsafe { self.inner.dealloc(block, layout) }
        } else {
            // SAFETY: the caller keeps `dealloc`'s contract.
            unsafe { self.dealloc_watched(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // As in `dealloc`, the free is reported first. It is undone if the reallocation fails.
        let account = on_free(block.addr(), layout.size());
        // SAFETY: the caller keeps `realloc`'s contract.
        let moved = unsafe { self.inner.realloc(block, layout, new_size) };
        if moved.is_null() {
            undo_free(block.addr(), layout.size(), account);
        }
        seen(moved, new_size)
    }
}

#[inline]
fn seen(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        heap_refusal::refused(size);
        return block;
    }
    if on_unwatched_alloc(size) { block } else { on_watched_alloc(block, size) }
}
