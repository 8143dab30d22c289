//! Asks the processor for memory that will be needed soon.
//!
//! A lock is given back by an instruction that waits for every write before it: one that has to fetch its line from
//! memory first costs what all else under the lock does not.

/// Begins to fetch the line that holds this address. It need not be anybody's memory.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "an instruction of the processor")]
pub(super) fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every processor of this kind has it; nothing is read, and no address is wrong.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
}

#[inline(always)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn prefetch(_address: usize) {}
