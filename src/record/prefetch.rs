//! Cache prefetch. The atomic instruction that releases a lock waits for all earlier stores, so a cache miss on a store
//! under the lock delays the release. Fetching those lines early keeps the miss out of the critical section.

/// Prefetches the cache line of this address, which need not be valid.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "a processor instruction")]
pub(super) fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: part of x86_64's baseline; a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
}

#[inline(always)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn prefetch(_address: usize) {}
