//! Reasons for the hooks to examine calls even while nothing is recorded: stream captures in progress, and addresses
//! whose free must be seen.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::gates;

/// Number of current reasons.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether there is any reason. Costs one relaxed load.
#[inline]
pub(super) fn is_wanted() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// The gate of every hook: two relaxed loads.
#[inline]
pub(super) fn is_idle() -> bool {
    !is_recording() && !is_wanted()
}

/// Whether device memory is recorded or measured.
#[inline]
pub(super) fn is_recording() -> bool {
    gates::watches_device_memory()
}

/// Adds a reason (if `holds`), or removes one. Must be called under the lock that protects the reason's object.
pub(super) fn set_reason(holds: bool) {
    if holds {
        COUNT.fetch_add(1, Ordering::AcqRel);
    } else {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}
