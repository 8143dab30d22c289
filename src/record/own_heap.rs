//! memtrace's own memory in a library that interposes `malloc`: a heap in mappings of its own. No other allocator sees
//! its calls, not even the interposed one. So while memtrace's threads follow a program, they hold no lock of the
//! program's allocator. A child made without fork handlers (a *stray child*) would wait for such a lock for ever. A
//! program with a single thread may allocate in such a child, and must be able to do so beside memtrace's threads, too.
//! Functions of C that allocate, such as `opendir`, are called on memtrace's threads only to write a snapshot while the
//! program runs.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use dlmalloc::Dlmalloc;

use super::lock::{Lock, Locked, rank};
use super::own_pages::{self, page_size};
use super::{gates, guard};
use crate::errno::KeepErrno;

/// Blocks of this size or more are mappings of their own.
const MAPPED: usize = 1 << 18;
/// The other blocks lie in segments of at least this size.
const SEGMENT: usize = 1 << 20;
/// The alignment of every block of the heap.
const NATURAL: usize = 2 * size_of::<usize>();
/// The smallest page of any system.
const PAGE: usize = 1 << 12;

static HEAP: Lock<Dlmalloc<Segments>, { rank::HEAP }> = Lock::new(Dlmalloc::new_with_allocator(Segments));

pub(super) type LockedHeap = Locked<'static, Dlmalloc<Segments>, { rank::HEAP }>;

pub(super) fn lock() -> LockedHeap {
    HEAP.lock()
}

/// Where the heap gets its segments, which it never returns.
#[derive(Debug)]
pub(super) struct Segments;

// SAFETY: segments are new mappings and never unmapped.
unsafe impl dlmalloc::Allocator for Segments {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let whole = size.next_multiple_of(SEGMENT);
        let start = map(whole);
        if start.is_null() { (map(size), size, 0) } else { (start, whole, 0) }
    }

    fn remap(&self, _start: *mut u8, _old: usize, _new: usize, _may_move: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _start: *mut u8, _old: usize, _new: usize) -> bool {
        false
    }

    fn free(&self, _start: *mut u8, _size: usize) -> bool {
        false
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// The size of a mapping, which has whole pages.
fn in_pages(size: usize) -> usize {
    size.next_multiple_of(page_size())
}

/// Makes a mapping; null if the system refuses.
#[cold]
fn map(size: usize) -> *mut u8 {
    let (_errno, _own) = (KeepErrno::new(), guard::own_work());
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    own_pages::add(start.addr(), in_pages(size));
    start.cast()
}

/// # Safety
/// A block that [`map`] or [`remap`] returned for this size.
#[cold]
unsafe fn unmap(start: *mut u8, size: usize) {
    let (_errno, _own) = (KeepErrno::new(), guard::own_work());
    own_pages::remove(start.addr());
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(start.cast(), size) };
}

/// Resizes a mapping, which may move. Null if the system refuses; then the mapping stays what it was.
///
/// # Safety
/// As for [`unmap`].
#[cold]
unsafe fn remap(start: *mut u8, old: usize, new: usize) -> *mut u8 {
    let (_errno, _own) = (KeepErrno::new(), guard::own_work());
    own_pages::remove(start.addr());
    // SAFETY: as the caller promises.
    let moved = unsafe { libc::mremap(start.cast(), old, new, libc::MREMAP_MAYMOVE) };
    let is_moved = moved != libc::MAP_FAILED;
    let (now, size) = if is_moved { (moved.cast(), new) } else { (start, old) };
    own_pages::add(now.addr(), in_pages(size));
    if is_moved { now } else { ptr::null_mut() }
}

/// Where the blocks of a layout lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Heap,
    Mapping,
}

fn place(layout: Layout) -> Place {
    if layout.size() >= MAPPED && layout.align() <= PAGE { Place::Mapping } else { Place::Heap }
}

/// Allocates a block. Its memory is zero if `zeroed` says so.
fn alloc(layout: Layout, zeroed: bool) -> *mut u8 {
    if gates::is_stray_child() {
        return alloc_in_stray_child(layout);
    }
    match (place(layout), zeroed) {
        (Place::Mapping, _) => map(layout.size()),
        // SAFETY: no preconditions.
        (Place::Heap, false) => unsafe { HEAP.lock().malloc(layout.size(), layout.align()) },
        // SAFETY: no preconditions.
        (Place::Heap, true) => unsafe { HEAP.lock().calloc(layout.size(), layout.align()) },
    }
}

/// A mapping that is never unmapped, because the heap's lock may be held for ever.
#[cold]
fn alloc_in_stray_child(layout: Layout) -> *mut u8 {
    let start = layout.size().max(1).checked_add(layout.align()).map_or(ptr::null_mut(), map);
    start.wrapping_add(start.align_offset(layout.align()))
}

/// memtrace's own heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

// SAFETY: blocks of the heap and mappings have the size and alignment that are asked for, and live until they are freed
// or reallocated. The layout alone decides where a block lies, except in stray children, which free nothing and stay
// what they are.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        alloc(layout, false)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        alloc(layout, true)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if gates::is_stray_child() {
            return;
        }
        match place(layout) {
            // SAFETY: the layout says that the block is a mapping of this size.
            Place::Mapping => unsafe { unmap(block, layout.size()) },
            // SAFETY: the layout says that the block is one of the heap's.
            Place::Heap => unsafe { HEAP.lock().c_free(block) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size rounded up to the alignment does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let resized = match (place(layout), place(new)) {
            _ if gates::is_stray_child() => ptr::null_mut(),
            // SAFETY: the layout says that the block is a mapping of this size.
            (Place::Mapping, Place::Mapping) => unsafe { remap(block, layout.size(), size) },
            // SAFETY: the layout says that the block is one of the heap's.
            (Place::Heap, Place::Heap) if layout.align() <= NATURAL => unsafe { HEAP.lock().c_realloc(block, size) },
            _ => ptr::null_mut(),
        };
        if !resized.is_null() {
            return resized;
        }
        let moved = alloc(new, false);
        if !moved.is_null() {
            // SAFETY: both blocks have this many bytes, and the new one is apart.
            unsafe { moved.copy_from_nonoverlapping(block, size.min(layout.size())) };
            // SAFETY: as the caller promises.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

// SAFETY: as for `GlobalAlloc` above; a block of 0 bytes is one of the heap's blocks, too.
unsafe impl Allocator for System {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        of(alloc(layout, false), layout.size())
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        of(alloc(layout, true), layout.size())
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.dealloc(block.as_ptr(), layout) };
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if old.align() != new.align() {
            return Err(AllocError);
        }
        // SAFETY: as the caller promises.
        of(unsafe { self.realloc(block.as_ptr(), old, new.size()) }, new.size())
    }
}

fn of(block: *mut u8, size: usize) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(block).map(|block| NonNull::slice_from_raw_parts(block, size)).ok_or(AllocError)
}

#[cfg(test)]
mod tests {
    use allocator_api2::vec::Vec;

    use super::*;

    #[test]
    fn contents_survive_growth_at_every_alignment() {
        for align in [1, 8, 16, 64, 4096, 1 << 16] {
            for (small, large) in [(100, 100_000), (100, 1 << 20), (1 << 19, 1 << 21)] {
                grows(Layout::from_size_align(small, align).unwrap(), large);
            }
        }
    }

    fn grows(layout: Layout, size: usize) {
        let new = Layout::from_size_align(size, layout.align()).unwrap();
        let mut block = System.allocate_zeroed(layout).unwrap();
        // SAFETY: nothing else has the block.
        let bytes = unsafe { block.as_mut() };
        assert!(bytes.len() == layout.size() && bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        // SAFETY: the block has this layout.
        let grown = unsafe { System.grow(block.cast(), layout, new) }.unwrap();
        // SAFETY: nothing else has the block.
        assert!(unsafe { grown.as_ref() }[..layout.size()].iter().all(|byte| *byte == 7));
        assert!(grown.cast::<u8>().addr().get().is_multiple_of(layout.align()));
        // SAFETY: the block has this layout.
        let shrunk = unsafe { System.realloc(grown.cast().as_ptr(), new, layout.size()) };
        // SAFETY: the block has this size, and nothing else has it.
        assert!(unsafe { std::slice::from_raw_parts(shrunk, layout.size()) }.iter().all(|byte| *byte == 7));
        // SAFETY: the block has this layout.
        unsafe { System.dealloc(shrunk, layout) };
    }

    #[test]
    fn collections_grow_and_a_request_beyond_all_memory_is_an_error() {
        let mut list = Vec::new_in(System);
        list.extend(0..100_000u32);
        list.shrink_to_fit();
        assert!(list.iter().copied().eq(0..100_000));
        assert!(list.try_reserve(usize::MAX / 8).is_err());
        assert!(System.allocate(Layout::from_size_align(0, 1).unwrap()).is_ok());
    }

    #[test]
    fn mappings_are_own_memory_until_they_are_freed() {
        // A size that no other test's mapping has, because its address may be given out again.
        let layout = Layout::from_size_align(MAPPED + 77 * page_size() - 1, 8).unwrap();
        let block = System.allocate(layout).unwrap().cast::<u8>();
        let pages = block.addr().get()..block.addr().get() + layout.size() + 1;
        let is_own = || own_pages::all().any(|range| range == pages);
        assert!(is_own());
        // SAFETY: the block has this layout.
        unsafe { System.deallocate(block, layout) };
        assert!(!is_own());
    }
}
