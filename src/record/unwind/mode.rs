//! Who takes the stacks, and how often they disagreed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::record::gates::GATES;

/// Our own unwinder, the library for what it cannot prove. This is what the gates begin with.
const FAST: u8 = 0;
/// The library checks what our own one says.
const CHECKED: u8 = 1;
/// The library alone.
const LIBRARY: u8 = 2;

/// Stacks that were compared with the library's.
pub(crate) static COMPARED: AtomicU64 = AtomicU64::new(0);
/// Those that our own unwinder got wrong; the library's were kept.
pub(crate) static WRONG: AtomicU64 = AtomicU64::new(0);

#[inline]
pub(super) fn is_fast() -> bool {
    GATES.unwinder.load(Relaxed) == FAST
}

#[inline]
pub(super) fn is_library() -> bool {
    GATES.unwinder.load(Relaxed) == LIBRARY
}

#[inline]
pub(super) fn is_checked() -> bool {
    GATES.unwinder.load(Relaxed) == CHECKED
}

/// Has every stack compared with the library's from now on, or no longer.
pub(crate) fn check_stacks(on: bool) {
    let (from, to) = if on { (FAST, CHECKED) } else { (CHECKED, FAST) };
    // Not out of `LIBRARY`, which is for good.
    let _ = GATES.unwinder.compare_exchange(from, to, Relaxed, Relaxed);
}

/// Leaves stacks to the library in a forked child: the loader's lock, which our own unwinder takes now
/// and then, may have been another thread's when the process was forked, and is then held for ever.
pub(crate) fn after_fork() {
    GATES.unwinder.store(LIBRARY, Relaxed);
}

pub(super) fn count(same: bool) {
    COMPARED.fetch_add(1, Relaxed);
    WRONG.fetch_add((!same).into(), Relaxed);
}
