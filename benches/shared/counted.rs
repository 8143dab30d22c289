//! Cost of work: seconds, and memory that memtrace takes from the system.
#![allow(dead_code, reason = "each bench uses a part of this")]
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The system's allocator with counters.
pub(crate) struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards every call to the system allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        MOST.fetch_max(NOW.fetch_add(size, Relaxed) + size, Relaxed);
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// Peak beyond the memory in use before.
    pub(crate) memory: usize,
    /// The part of it that remains.
    pub(crate) kept: usize,
}

/// Runs `work` and measures its cost.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let began = Instant::now();
    let value = work();
    let seconds = began.elapsed().as_secs_f64();
    let beyond = |most: usize| most.saturating_sub(before);
    (value, Cost { seconds, memory: beyond(MOST.load(Relaxed)), kept: beyond(NOW.load(Relaxed)) })
}
