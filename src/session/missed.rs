//! What was not seen, or not kept.

use crate::hook::cuda;
#[cfg(feature = "tracing")]
use crate::layer;
use crate::record::{CONTEXTS, STACKS, device_memory, guard, here, unwind};
use crate::snapshot::{Health, Spans};

/// What was missed in this process, in all recordings and measurements together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    shortened_stacks: u64,
    compared_stacks: u64,
    wrong_stacks: u64,
    lost_stacks: u64,
    lost_scopes: u64,
    lost_blocks: u64,
    unknown_frees: u64,
    refused_frees: u64,
}

impl Missed {
    pub(super) fn so_far() -> Self {
        Self {
            shortened_stacks: here::shortened_stacks(),
            compared_stacks: unwind::compared_stacks(),
            wrong_stacks: unwind::wrong_stacks(),
            lost_stacks: STACKS.refused(),
            lost_scopes: CONTEXTS.refused(),
            lost_blocks: device_memory::lost(),
            unknown_frees: device_memory::unknown_frees(),
            refused_frees: device_memory::refused_frees(),
        }
    }

    pub(super) fn since(self) -> Health {
        let now = Self::so_far();
        Health {
            shortened_stacks: now.shortened_stacks - self.shortened_stacks,
            compared_stacks: now.compared_stacks - self.compared_stacks,
            wrong_stacks: now.wrong_stacks - self.wrong_stacks,
            lost_stacks: now.lost_stacks - self.lost_stacks,
            lost_scopes: now.lost_scopes - self.lost_scopes,
            lost_blocks: now.lost_blocks - self.lost_blocks,
            unknown_frees: now.unknown_frees - self.unknown_frees,
            refused_frees: now.refused_frees - self.refused_frees,
            cuda: cuda::coverage(),
            no_allocator: !guard::allocator_is_installed(),
            ..Health::default()
        }
    }
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
