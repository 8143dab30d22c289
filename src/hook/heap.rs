//! The heap of the process, through the global allocator.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};

use crate::record::heap::{
    on_free, on_unwatched_alloc, on_unwatched_dealloc, on_watched_alloc, on_watched_dealloc, refused, undo_free,
};
use crate::snapshot::Device;

/// A global allocator that lets memtrace see the memory of CPU tensors, and passes every request on.
///
/// ```
/// #[global_allocator]
/// static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # fn main() {}
/// ```
///
/// # What it costs
/// While nothing is recorded or measured, a request costs two thread-local reads, one relaxed load and
/// one addition besides the allocation itself, from the 64th thread on an uncontended atomic one: the
/// live bytes of *all* blocks are always counted, so that a recording can say exactly what was there
/// before it began.
///
/// # What it means
/// A reallocation is a free followed by an allocation at the line that reallocates. Memory that C
/// libraries take with `malloc`, and mapped files, do not pass through here and are not seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A = System> {
    inner: A,
}

impl Alloc<System> {
    /// Over the system allocator, Rust's default.
    pub const fn system() -> Self {
        Self { inner: System }
    }
}

/// What `malloc` serves as it is. Anything else needs memory of the function that asks for it, which then cannot hand
/// over to [`on_watched_alloc`] and stays a frame of the stack.
#[inline(always)]
const fn is_common(layout: Layout) -> bool {
    layout.align() <= 16 && layout.align() <= layout.size()
}

impl<A: GlobalAlloc> Alloc<A> {
    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    #[inline(never)]
    unsafe fn alloc_aligned(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        seen(unsafe { self.inner.alloc(layout) }, layout.size())
    }

    /// # Safety
    /// As [`GlobalAlloc::alloc_zeroed`].
    #[inline(never)]
    unsafe fn alloc_zeroed_aligned(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        seen(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
    }

    /// Apart, so that the way of a block that nobody watches keeps nothing for afterwards.
    ///
    /// # Safety
    /// As [`GlobalAlloc::dealloc`].
    #[inline(never)]
    unsafe fn dealloc_watched(&self, block: *mut u8, layout: Layout) {
        on_watched_dealloc(block.addr(), layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { self.inner.dealloc(block, layout) }
    }
}

impl<A> Alloc<A> {
    /// Over another allocator, such as jemalloc or mimalloc.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: every request goes to `inner` unchanged and its answer comes back unchanged; what is done
// besides neither unwinds nor touches the memory in question.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_common(layout) {
            // SAFETY: the caller keeps `alloc`'s contract.
            seen(unsafe { self.inner.alloc(layout) }, layout.size())
        } else {
            // SAFETY: likewise.
            unsafe { self.alloc_aligned(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_common(layout) {
            // SAFETY: the caller keeps `alloc_zeroed`'s contract.
            seen(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
        } else {
            // SAFETY: likewise.
            unsafe { self.alloc_zeroed_aligned(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before the memory is given back: afterwards another thread may own this address.
        if on_unwatched_dealloc(layout.size()) {
            // SAFETY: the caller keeps `dealloc`'s contract.
            unsafe { self.inner.dealloc(block, layout) }
        } else {
            // SAFETY: likewise.
            unsafe { self.dealloc_watched(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Out first, for the same reason; back in if nothing came of it.
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
        refused(Device::Cpu, size);
        return block;
    }
    if on_unwatched_alloc(size) { block } else { on_watched_alloc(block, size) }
}
