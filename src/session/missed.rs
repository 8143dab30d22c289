//! Health counters of this process: how many events were not seen or not kept, since the process began or since a
//! recording began.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use memtrace_core::snapshot::{Health, Spans};

use crate::hook::cuda;
#[cfg(feature = "tracing")]
use crate::layer;
use crate::record::{CONTEXTS, STACKS, device_memory, event_site, guard, unwind};

/// The counters over all recordings and measurements of this process.
pub(super) fn so_far() -> Health {
    Health {
        shortened_stacks: event_site::SHORTENED.load(Relaxed),
        compared_stacks: unwind::COMPARED.load(Relaxed),
        wrong_stacks: unwind::WRONG.load(Relaxed),
        lost_stacks: STACKS.refused(),
        lost_scopes: CONTEXTS.refused(),
        lost_blocks: device_memory::LOST.load(Relaxed),
        unplaced_blocks: device_memory::UNPLACED.load(Relaxed),
        unknown_frees: device_memory::UNKNOWN_FREES.load(Relaxed),
        refused_frees: device_memory::REFUSED_FREES.load(Relaxed),
        executable_graphs: cuda::executable_graphs(),
        ..Health::default()
    }
}

/// The counters since an earlier reading, and what memtrace cannot see at all.
pub(super) fn since(earlier: &Health) -> Health {
    Health { cuda: cuda::coverage(), no_allocator: !guard::allocator_is_installed(), ..so_far().since(earlier) }
}

/// Whether `tracing` spans can become scopes.
#[cfg(feature = "tracing")]
pub(super) fn spans() -> Spans {
    match (layer::was_installed(), layer::trace_is_silenced()) {
        (false, _) => Spans::NoLayer,
        (true, false) => Spans::Heard,
        (true, true) => Spans::Silenced,
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) fn spans() -> Spans {
    Spans::NoLayer
}

/// When the recording began, and the process's health counters at that moment.
#[derive(Clone, Debug)]
pub(super) struct RecordingStart {
    pub(super) began: Instant,
    pub(super) unix_us: u64,
    pub(super) missed: Health,
}

impl RecordingStart {
    pub(super) fn now() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), unix_us: epoch.as_micros() as u64, missed: so_far() }
    }
}
