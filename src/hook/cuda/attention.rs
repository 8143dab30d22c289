//! Reasons for the hooks to look at calls although nothing is recorded: captures under
//! way, addresses that are remembered until they are freed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::gates;

/// Reasons that hold.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// One relaxed load.
#[inline]
pub(super) fn is_wanted() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// The gate of every hook: two relaxed loads.
#[inline]
pub(super) fn is_idle() -> bool {
    !gates::watches_device_memory() && !is_wanted()
}

/// Does anybody record?
#[inline]
pub(super) fn watching() -> bool {
    gates::watches_device_memory()
}

/// There is a reason more, or one less. To be called under the lock of what it is about.
pub(super) fn set_reason(holds: bool) {
    if holds {
        COUNT.fetch_add(1, Ordering::AcqRel);
    } else {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}
