//! The processor's time counter, and the conversion of its ticks. On x86-64 it is the time-stamp counter (TSC). On
//! aarch64 it is the virtual counter, which by the architecture has one rate on all cores.

use std::sync::OnceLock;
use std::time::Instant;

/// System clock and counter at the first reading.
static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();

/// Reads the counter. The first call stores the origin for [`to_ns`].
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
    // SAFETY: the instruction is part of x86_64's baseline.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
#[expect(unsafe_code, reason = "a processor instruction")]
pub(super) fn read() -> u64 {
    let ticks;
    // SAFETY: reads a register; Linux allows that to every program.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
pub(super) fn read() -> u64 {
    0
}

/// Ticks in about two microseconds.
#[cfg(not(all(target_arch = "aarch64", not(miri))))]
pub(super) fn of_two_us() -> u64 {
    5_000
}

/// Ticks in about two microseconds.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[expect(unsafe_code, reason = "a processor instruction")]
pub(super) fn of_two_us() -> u64 {
    let per_second: u64;
    // SAFETY: reads a register; Linux allows that to every program.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) per_second, options(nomem, nostack, preserves_flags)) };
    // Two readings of a slow counter may differ by one tick.
    (per_second / 500_000).max(2)
}

/// Whether the counter has a constant rate (an invariant TSC). This does not say whether all cores are synchronised.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn are_steady() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    // The answer is stored, because `cpuid` is slow in a virtual machine.
    static STEADY: OnceLock<bool> = OnceLock::new();
    *STEADY.get_or_init(|| __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0)
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(super) fn are_steady() -> bool {
    cfg!(all(target_arch = "aarch64", not(miri)))
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
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
