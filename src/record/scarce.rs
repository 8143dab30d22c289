//! An allocator for unit tests in which memory runs out.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

#[cfg(not(all(feature = "preload", target_os = "linux", target_env = "gnu")))]
use allocator_api2::alloc::System as Plenty;
use allocator_api2::alloc::{AllocError, Allocator};

#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
use super::own_heap::System as Plenty;

thread_local! {
    /// Allocations of this thread that still succeed.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Runs `f`; after `count` allocations of this thread, the recorder gets no more memory.
pub(crate) fn with_memory_for<T>(count: usize, f: impl FnOnce() -> T) -> T {
    let before = LEFT.replace(count);
    let result = f();
    LEFT.set(before);
    result
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

// SAFETY: the other allocator does all the work; a refused request changes nothing.
unsafe impl Allocator for System {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let left = LEFT.get();
        LEFT.set(left.checked_sub(1).ok_or(AllocError)?);
        Plenty.allocate(layout)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller keeps the contract, and the memory came from this allocator.
        unsafe { Plenty.deallocate(start, layout) };
    }
}
