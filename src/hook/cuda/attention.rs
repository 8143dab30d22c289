//! Reasons for the hooks to look at calls although nothing is recorded: captures under
//! way, addresses that are remembered until they are freed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

#[derive(Debug)]
pub(super) struct Reason(AtomicBool);

impl Reason {
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// To be called under the lock of what it is about.
    pub(super) fn set(&self, holds: bool) {
        if self.0.swap(holds, Ordering::AcqRel) == holds {
            return;
        }
        let by_one = if holds { AtomicU64::fetch_add } else { AtomicU64::fetch_sub };
        by_one(&COUNT, 1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_counts_once_as_long_as_it_holds() {
        static REASON: Reason = Reason::new();
        // Nothing else of this process's is about CUDA but tests, whose reasons hold shortly.
        [true, true, false, true].into_iter().for_each(|holds| REASON.set(holds));
        assert!(REASON.holds() && is_wanted());
        REASON.set(false);
        assert!(!REASON.holds());
    }
}
