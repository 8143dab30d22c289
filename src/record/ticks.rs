//! The processor's time-stamp counter (TSC), and the conversion of its ticks.

use std::sync::OnceLock;
use std::time::Instant;

/// System clock and TSC at the first reading.
static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();

/// The TSC. The first call stores the origin for [`to_ns`].
#[inline]
pub(crate) fn now() -> u64 {
    let ticks = read();
    if FIRST.get().is_none() {
        let _ = FIRST.set((Instant::now(), ticks));
    }
    ticks
}

/// Converts ticks to nanoseconds, at the mean rate since the first reading.
pub(crate) fn to_ns() -> impl Fn(u64) -> u64 {
    let (ns, ticks) = FIRST.get().map_or((1, 1), |(began, first)| {
        (began.elapsed().as_nanos().max(1), u128::from(read().saturating_sub(*first).max(1)))
    });
    move |count| u64::try_from(u128::from(count) * ns / ticks).unwrap_or(u64::MAX)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[expect(unsafe_code, reason = "a processor instruction")]
pub(super) fn read() -> u64 {
    // SAFETY: part of x86_64's baseline.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn read() -> u64 {
    0
}

/// Is the TSC invariant (constant rate)? Nothing says whether all cores are synchronised.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn are_steady() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    // `cpuid` is slow in a virtual machine.
    static STEADY: OnceLock<bool> = OnceLock::new();
    *STEADY.get_or_init(|| __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0)
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(super) fn are_steady() -> bool {
    false
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ticks_are_about_as_long_as_they_should_be() {
        let (before, began) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(30));
        let (ticks, took) = (now() - before, began.elapsed());
        let measured = Duration::from_nanos(to_ns()(ticks));
        assert!(measured > took / 2 && measured < took * 2, "{measured:?} {took:?}");
    }
}
