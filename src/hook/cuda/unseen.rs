//! Counts of calls whose memory, or effect on memory, is not recorded. The report lists these calls.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_core::snapshot::UnseenCalls;

use super::attention;

pub(super) struct Unseen {
    function: &'static str,
    calls: AtomicU64,
}

pub(super) static MULTICAST: Unseen = Unseen::of("cuMulticastCreate");
/// Calls that became nodes of graphs that the driver did not identify.
pub(super) static CAPTURED: Unseen = Unseen::of("cuMemAllocAsync or cuMemFreeAsync under stream capture");

/// Functions that were called, each with its number of calls.
pub(super) fn calls() -> Vec<UnseenCalls> {
    let counts = [&MULTICAST, &CAPTURED].map(|unseen| (unseen.function, unseen.calls.load(Ordering::Relaxed)));
    let called = counts.into_iter().filter(|(_, calls)| *calls > 0);
    called.map(|(function, calls)| UnseenCalls { function: function.to_owned(), calls }).collect()
}

impl Unseen {
    const fn of(function: &'static str) -> Self {
        Self { function, calls: AtomicU64::new(0) }
    }

    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call if device memory is recorded.
    pub(super) fn called(&self) -> impl FnOnce(c_int) + use<> {
        if attention::is_recording() {
            self.count();
        }
        |_| {}
    }
}
