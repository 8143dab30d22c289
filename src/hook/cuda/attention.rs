//! Reasons for the hooks to look at calls without a recording: stream captures under way, addresses that must be seen
//! freed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::gates;

/// The number of reasons.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// One relaxed load.
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

/// Adds a reason, or removes one. Call this under the lock of what the reason is about.
pub(super) fn set_reason(holds: bool) {
    if holds {
        COUNT.fetch_add(1, Ordering::AcqRel);
    } else {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}
