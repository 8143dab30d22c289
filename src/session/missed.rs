//! What was not seen, or not kept.

use crate::hook::cuda;
#[cfg(feature = "tracing")]
use crate::layer;
use crate::record::{CONTEXTS, STACKS, device_memory, guard, here, unwind};
use crate::snapshot::{Health, Spans};

/// What was missed in this process, in all recordings and measurements together.
pub(super) fn so_far() -> Health {
    Health {
        shortened_stacks: here::shortened_stacks(),
        compared_stacks: unwind::compared_stacks(),
        wrong_stacks: unwind::wrong_stacks(),
        lost_stacks: STACKS.refused(),
        lost_scopes: CONTEXTS.refused(),
        lost_blocks: device_memory::lost(),
        unknown_frees: device_memory::unknown_frees(),
        refused_frees: device_memory::refused_frees(),
        ..Health::default()
    }
}

/// What was missed since an earlier reading, and what cannot be seen.
pub(super) fn since(earlier: &Health) -> Health {
    Health { cuda: cuda::coverage(), no_allocator: !guard::allocator_is_installed(), ..so_far().since(earlier) }
}

/// Whether spans can become scopes as things stand.
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
