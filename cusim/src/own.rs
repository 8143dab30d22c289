//! Collections with an `mmap` allocator, because the program under test may watch its own `malloc`. The simulator must
//! not show up there.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use foldhash::fast::FixedState;

pub(crate) type MmapVec<T> = allocator_api2::vec::Vec<T, Mmap>;
pub(crate) type MmapMap<K, V> = hashbrown::HashMap<K, V, FixedState, Mmap>;

pub(crate) fn mmap_map<K, V>() -> MmapMap<K, V> {
    MmapMap::with_hasher_in(FixedState::with_seed(0x0063_7573_696D), Mmap)
}

pub(crate) fn mmap_vec<T>() -> MmapVec<T> {
    MmapVec::new_in(Mmap)
}

/// Allocator that maps each block separately, which suits few, growing tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mmap;

// SAFETY: each block is a mapping of its own; the allocator has no state, so all copies are equal.
unsafe impl Allocator for Mmap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let length = layout.size().max(1).next_multiple_of(PAGE);
        let start = map(length, libc::PROT_READ | libc::PROT_WRITE).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, length))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        let length = layout.size().max(1).next_multiple_of(PAGE);
        // SAFETY: `allocate` returned this block for this layout.
        unsafe { libc::munmap(start.as_ptr().cast(), length) };
    }
}

pub(crate) const PAGE: usize = 4096;

/// A private mapping, which takes no memory until it is touched and reads as zero.
pub(crate) fn map(length: usize, protection: i32) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: it makes a new mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}
