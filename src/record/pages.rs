//! Allocator for large buffers on huge pages (`mmap`, `MADV_HUGEPAGE`). A huge page costs one page fault instead of
//! 512, and fewer TLB misses.
#![expect(unsafe_code, reason = "an allocator over mmap")]

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::memory::System;
use super::own_pages;
use crate::errno::KeepErrno;

pub(crate) type PageVec<T> = allocator_api2::vec::Vec<T, Pages>;

/// Layouts of 2 MiB and more are mapped; smaller ones come from the system allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages;

/// Size of a huge page.
pub(super) const LARGE: usize = 1 << 21;

const IS_THERE: bool = cfg!(all(target_os = "linux", not(miri)));

fn is_large(layout: Layout) -> bool {
    IS_THERE && layout.size() >= LARGE && layout.align() <= LARGE
}

// SAFETY: memory comes from the system allocator or from a mapping of its own, has the requested size and alignment,
// and stays valid until it is deallocated. The layout alone decides which of the two it comes from.
unsafe impl Allocator for Pages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if is_large(layout) { map(layout.size()) } else { System.allocate(layout) }
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // New mappings are zeroed.
        if is_large(layout) { map(layout.size()) } else { System.allocate_zeroed(layout) }
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if is_large(layout) {
            own_pages::remove(start.addr().get());
            // SAFETY: the caller returns what `map` returned for this layout.
            unsafe { unmap(start.as_ptr(), in_small_pages(layout.size()).unwrap_or(0)) };
        } else {
            // SAFETY: the caller keeps the contract, and memory of this layout came from the system allocator.
            unsafe { System.deallocate(start, layout) };
        }
    }
}

/// Maps one huge page more than needed, and unmaps the parts before and after the aligned range.
#[cfg(all(target_os = "linux", not(miri)))]
fn map(size: usize) -> Result<NonNull<[u8]>, AllocError> {
    let _errno = KeepErrno::new();
    let size = in_small_pages(size)?;
    let room = size.checked_add(LARGE).ok_or(AllocError)?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses.
    let found = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
    if found == libc::MAP_FAILED {
        return Err(AllocError);
    }
    let before = found.addr().next_multiple_of(LARGE) - found.addr();
    let start = found.cast::<u8>().wrapping_add(before);
    // SAFETY: the part of the mapping before the aligned start.
    unsafe { unmap(found.cast(), before) };
    // SAFETY: the part of the mapping after the memory that is returned.
    unsafe { unmap(start.wrapping_add(size), LARGE - before) };
    own_pages::add(start.addr(), size);
    // SAFETY: within the mapping. If the call fails, the pages stay small.
    unsafe { libc::madvise(start.cast(), size, libc::MADV_HUGEPAGE) };
    NonNull::new(start).map(|start| NonNull::slice_from_raw_parts(start, size)).ok_or(AllocError)
}

/// # Safety
/// The pages belong to a mapping that [`map`] made, and nothing uses them any more.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn unmap(start: *mut u8, size: usize) {
    if size > 0 {
        let _errno = KeepErrno::new();
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(start.cast(), size) };
    }
}

fn in_small_pages(size: usize) -> Result<usize, AllocError> {
    // No Linux has a larger base page.
    size.checked_next_multiple_of(1 << 16).ok_or(AllocError)
}

#[cfg(any(not(target_os = "linux"), miri))]
fn map(_size: usize) -> Result<NonNull<[u8]>, AllocError> {
    Err(AllocError)
}

#[cfg(any(not(target_os = "linux"), miri))]
unsafe fn unmap(_start: *mut u8, _size: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_what_is_in_them_whatever_their_length() {
        for length in [1, 1000, 1 << 18, (1 << 18) + 1, 1 << 20] {
            let mut list = PageVec::new_in(Pages);
            list.extend(0..length as u64);
            list.shrink_to_fit();
            assert!(list.iter().copied().eq(0..length as u64));
            assert!(length * 8 < LARGE || list.as_ptr().addr().is_multiple_of(LARGE));
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_refused_and_nobody_notices() {
        let mut list: PageVec<u64> = PageVec::new_in(Pages);
        let before = std::io::Error::last_os_error().raw_os_error();
        assert!(list.try_reserve_exact(isize::MAX as usize / 16).is_err());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), before);
    }
}
