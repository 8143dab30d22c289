//! The processor's clock: it is read in a few nanoseconds, and what its ticks are worth shows over time.

use std::sync::OnceLock;
use std::time::Instant;

/// Both clocks when this one was first read.
static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();

/// Ticks so far. The first call remembers what a tick is to be measured from.
#[inline]
pub(crate) fn now() -> u64 {
    let ticks = read();
    if FIRST.get().is_none() {
        let _ = FIRST.set((Instant::now(), ticks));
    }
    ticks
}

/// What ticks are in nanoseconds, as far as can be told by now.
pub(crate) fn to_ns() -> impl Fn(u64) -> u64 {
    let (ns, ticks) = FIRST.get().map_or((1, 1), |(began, first)| {
        (began.elapsed().as_nanos().max(1), u128::from(read().saturating_sub(*first).max(1)))
    });
    move |count| u64::try_from(u128::from(count) * ns / ticks).unwrap_or(u64::MAX)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[expect(unsafe_code, reason = "an instruction of the processor")]
pub(super) fn read() -> u64 {
    // SAFETY: every processor of this kind has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Elsewhere nothing is measured yet.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn read() -> u64 {
    0
}

/// Do ticks always come at the same rate? Whether all cores count together, nobody says.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn are_steady() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    // Asked once: to a virtual machine the answer is slow.
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
