//! A clock that is cheap enough to be read around each pair.

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: part of x86_64's baseline.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The cost of reading the clock twice, in ticks.
pub(crate) fn overhead() -> u32 {
    let mut all: Vec<u32> = (0..1001).map(|_| (ticks().wrapping_neg().wrapping_add(ticks())) as u32).collect();
    all.sort_unstable();
    all[all.len() / 2]
}
