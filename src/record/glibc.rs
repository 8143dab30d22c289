//! memtrace's own memory in a library that interposes `malloc`. It calls glibc's functions by names that nothing
//! interposes, so neither this library nor another allocator sees the calls.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use allocator_api2::alloc::{AllocError, Allocator};

use super::mappings;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, size: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
    fn __libc_memalign(alignment: usize, size: usize) -> *mut u8;
}

/// Allocates and frees through the functions that the program calls.
pub(super) fn touch_the_programs_memory() {
    // SAFETY: no preconditions.
    let block = unsafe { libc::malloc(1) };
    // SAFETY: the new block.
    unsafe { libc::free(std::hint::black_box(block)) };
}

/// Live bytes of memtrace's blocks smaller than [`LARGE`].
static BYTES: AtomicI64 = AtomicI64::new(0);
/// From this size on, glibc may map a block of its own. Such blocks are known by their addresses.
const LARGE: usize = 1 << 16;

pub(crate) fn own_bytes() -> u64 {
    u64::try_from(BYTES.load(Relaxed)).unwrap_or(0)
}

fn count(block: *mut u8, size: usize) -> *mut u8 {
    match size < LARGE {
        _ if block.is_null() => {}
        true => _ = BYTES.fetch_add(size as i64, Relaxed),
        false => mappings::add_own(block.addr(), size),
    }
    block
}

fn count_free(block: *mut u8, size: usize) {
    match size < LARGE {
        true => _ = BYTES.fetch_sub(size as i64, Relaxed),
        false => mappings::remove_own(block.addr()),
    }
}

/// The alignment of every glibc block.
const ALIGNMENT: usize = 16;

/// glibc's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

// SAFETY: glibc's blocks have the size and alignment that are asked for, and live until they are freed or reallocated.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = match layout.align() <= ALIGNMENT {
            // SAFETY: no preconditions.
            true => unsafe { __libc_malloc(layout.size()) },
            // SAFETY: a layout's alignment is a power of two.
            false => unsafe { __libc_memalign(layout.align(), layout.size()) },
        };
        count(block, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            // SAFETY: no preconditions.
            return count(unsafe { __libc_calloc(1, layout.size()) }, layout.size());
        }
        // SAFETY: as the caller promises.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_free(block, layout.size());
        // SAFETY: a block of this allocator, as the caller promises.
        unsafe { __libc_free(block) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            count_free(block, layout.size());
            // SAFETY: a block of this allocator, as the caller promises.
            let moved = unsafe { __libc_realloc(block, size) };
            if moved.is_null() {
                count(block, layout.size());
            }
            return count(moved, size);
        }
        // SAFETY: the caller promises that the size rounded up to the alignment does not overflow.
        let larger = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as the caller promises.
        let new = unsafe { self.alloc(larger) };
        if !new.is_null() {
            // SAFETY: both blocks have this many bytes, and the new one is apart.
            unsafe { new.copy_from_nonoverlapping(block, size.min(layout.size())) };
            // SAFETY: a block of this allocator, as the caller promises.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

// SAFETY: as for `GlobalAlloc` above; a block of 0 bytes is one of glibc's blocks, too.
unsafe impl Allocator for System {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: glibc accepts a size of 0.
        of(unsafe { self.alloc(layout) }, layout.size())
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: glibc accepts a size of 0.
        of(unsafe { self.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.dealloc(block.as_ptr(), layout) };
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // `realloc` keeps the alignment, and would free the block for a size of 0.
        let layout =
            Layout::from_size_align(new.size().max(1), old.align().max(new.align())).map_err(|_| AllocError)?;
        let old = Layout::from_size_align(old.size(), layout.align()).map_err(|_| AllocError)?;
        // SAFETY: as the caller promises.
        of(unsafe { self.realloc(block.as_ptr(), old, layout.size()) }, new.size())
    }
}

fn of(block: *mut u8, size: usize) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(block).map(|block| NonNull::slice_from_raw_parts(block, size)).ok_or(AllocError)
}

#[cfg(test)]
mod tests {
    use super::super::memory::OwnVec;
    use super::*;

    #[test]
    fn contents_survive_growth_at_every_alignment() {
        for align in [1, 8, 16, 64, 4096] {
            let layout = |size| Layout::from_size_align(size, align).unwrap();
            let mut block = System.allocate_zeroed(layout(100)).unwrap();
            // SAFETY: nothing else has the block.
            let bytes = unsafe { block.as_mut() };
            assert!(bytes.len() == 100 && bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
            // SAFETY: the block has this layout.
            let grown = unsafe { System.grow(block.cast(), layout(100), layout(100_000)) }.unwrap();
            // SAFETY: nothing else has the block.
            assert!(unsafe { grown.as_ref() }.starts_with(&[7; 100]));
            assert!(grown.cast::<u8>().addr().get().is_multiple_of(align));
            // SAFETY: the block has this layout.
            unsafe { System.deallocate(grown.cast(), layout(100_000)) };
        }
    }

    #[test]
    fn collections_grow_and_a_request_beyond_all_memory_is_an_error() {
        let mut list = OwnVec::new_in(System);
        list.extend(0..100_000u32);
        list.shrink_to_fit();
        assert!(list.iter().copied().eq(0..100_000));
        assert!(list.try_reserve(usize::MAX / 8).is_err());
        assert!(System.allocate(Layout::from_size_align(0, 1).unwrap()).is_ok());
    }
}
