//! What allocators would reserve, as JSON.

use super::text::text_of;
use crate::analysis::{Packing, RunsOut, WhatIf};
use crate::error::Error;
use crate::figures::figures;
use crate::recording::DeviceView;

/// Increases when a key is removed or changes its meaning.
const VERSION: u32 = 1;

figures! {
    struct WhatIfDocument<'a>(
        device: &DeviceView<'_>, memory: Option<u64>, all: &[WhatIf], choice: Option<&WhatIf>, packing: Packing,
        words: (&'a [String], &'a [String])
    ) {
        version: u32 = VERSION,
        device: String = device.device.to_string(),
        memory_bytes: Option<u64> = memory,
        answer: &'a [String] = words.0,
        notes: &'a [String] = words.1,
        choice: Option<String> = choice.map(|found| found.model.to_string()),
        packing: PackingFigures = PackingFigures::of(packing),
        allocators: Vec<AllocatorFigures> = all.iter().map(|found| AllocatorFigures::of(device, found)).collect(),
    }

    /// The tightest packing that was found, in bytes.
    struct PackingFigures(packing: Packing) {
        bytes: u64 = packing.bytes,
        live_peak_bytes: u64 = packing.live_peak,
        gave_up: bool = packing.gave_up,
    }

    /// A model's figures, in bytes and nanoseconds.
    struct AllocatorFigures(device: &DeviceView<'_>, found: &WhatIf) {
        allocator: String = found.model.to_string(),
        setting: String = found.model.how(),
        live_peak_bytes: u64 = found.live_peak,
        reserved_peak_bytes: u64 = found.reserved_peak,
        peak_ns: u64 = found.peak_ns,
        live_then_bytes: u64 = found.live_then,
        free_then_bytes: u64 = found.free_then,
        segments_then: usize = found.segments_then,
        reserved_end_bytes: u64 = found.reserved_end,
        records: usize = found.records,
        reserved_bytes: Vec<u64> = found.columns.clone(),
        runs_out: Option<RefusedFigures> = found.runs_out.as_ref().map(|out| RefusedFigures::of(device, out)),
    }

    struct RefusedFigures(device: &DeviceView<'_>, out: &RunsOut) {
        time_ns: u64 = out.time_ns,
        records: usize = out.records,
        size_bytes: u64 = out.size,
        live_bytes: u64 = out.live,
        reserved_bytes: u64 = out.reserved,
        free_bytes: u64 = out.free,
        largest_free_bytes: u64 = out.largest_gap,
        line: Option<String> = out.block.map(|block| crate::analysis::line_label(device.data(), block.stack.0)),
    }
}

/// How models of allocators handle a device's requests, as JSON.
///
/// # Errors
/// Never, because text can always be written.
pub fn what_if_json(
    device: &DeviceView<'_>,
    memory: Option<u64>,
    all: &[WhatIf],
    choice: Option<&WhatIf>,
    packing: Packing,
    words: (&[String], &[String]),
) -> Result<String, Error> {
    text_of(&WhatIfDocument::of(device, memory, all, choice, packing, words))
}
