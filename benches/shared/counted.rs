//! What work costs: seconds, and the memory that memtrace takes from the system for it.
#![allow(dead_code, reason = "each bench uses a part of this")]
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The system's allocator, counted.
pub(crate) struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system allocator.
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

/// What some work cost.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// Most memory beyond what there was before.
    pub(crate) memory: usize,
    /// What is left of it.
    pub(crate) kept: usize,
}

/// What `work` gives, and what it cost.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let began = Instant::now();
    let value = work();
    let seconds = began.elapsed().as_secs_f64();
    let beyond = |most: usize| most.saturating_sub(before);
    (value, Cost { seconds, memory: beyond(MOST.load(Relaxed)), kept: beyond(NOW.load(Relaxed)) })
}
