//! Tables in memory that comes from the kernel. The program under test may watch its own `malloc`; what
//! the simulator does must not show there.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use foldhash::fast::FixedState;

pub(crate) type OwnVec<T> = allocator_api2::vec::Vec<T, Kernel>;
pub(crate) type OwnMap<K, V> = hashbrown::HashMap<K, V, FixedState, Kernel>;

pub(crate) fn own_map<K, V>() -> OwnMap<K, V> {
    OwnMap::with_hasher_in(FixedState::with_seed(0x0063_7573_696D), Kernel)
}

pub(crate) fn own_vec<T>() -> OwnVec<T> {
    OwnVec::new_in(Kernel)
}

/// An allocator whose every block is a mapping of its own: for few, growing tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kernel;

// SAFETY: a block is a mapping that nobody else has; copies of `Kernel` are the same, it has no state.
unsafe impl Allocator for Kernel {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let length = layout.size().max(1).next_multiple_of(PAGE);
        let start = map(length, libc::PROT_READ | libc::PROT_WRITE).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, length))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        let length = layout.size().max(1).next_multiple_of(PAGE);
        // SAFETY: the caller gives back what `allocate` gave for this layout.
        unsafe { libc::munmap(start.as_ptr().cast(), length) };
    }
}

pub(crate) const PAGE: usize = 4096;

/// A private mapping that takes no memory until it is touched. Reads as zero.
pub(crate) fn map(length: usize, protection: i32) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: asks for a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}
