//! What allocators would reserve, as JSON.

use serde::Serialize;

use crate::analysis::{Packing, RunsOut, WhatIf};
use crate::error::Error;
use crate::recording::DeviceView;
use crate::visible;

/// Higher if a key is gone or has another meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct WhatIfDocument<'a> {
    version: u32,
    device: String,
    memory_bytes: Option<u64>,
    answer: &'a [String],
    notes: &'a [String],
    choice: Option<String>,
    packing: PackingFigures,
    allocators: Vec<AllocatorFigures>,
}

/// The tightest packing that was found, in bytes.
#[derive(Serialize)]
struct PackingFigures {
    bytes: u64,
    live_peak_bytes: u64,
    gave_up: bool,
}

/// A model's figures, in bytes and nanoseconds.
#[derive(Serialize)]
struct AllocatorFigures {
    allocator: String,
    setting: String,
    live_peak_bytes: u64,
    reserved_peak_bytes: u64,
    peak_ns: u64,
    live_then_bytes: u64,
    free_then_bytes: u64,
    segments_then: usize,
    reserved_end_bytes: u64,
    records: usize,
    reserved_bytes: Vec<u64>,
    runs_out: Option<RefusedFigures>,
}

#[derive(Serialize)]
struct RefusedFigures {
    time_ns: u64,
    records: usize,
    size_bytes: u64,
    live_bytes: u64,
    reserved_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    line: Option<String>,
}

/// What models of allocators do with a device's requests, as JSON.
///
/// # Errors
/// Never: text can always be written.
pub fn what_if_json(
    device: &DeviceView<'_>,
    memory: Option<u64>,
    all: &[WhatIf],
    choice: Option<&WhatIf>,
    packing: Packing,
    (answer, notes): (&[String], &[String]),
) -> Result<String, Error> {
    let document = WhatIfDocument {
        version: VERSION,
        device: device.device.to_string(),
        memory_bytes: memory,
        answer,
        notes,
        choice: choice.map(|found| found.model.to_string()),
        packing: PackingFigures { bytes: packing.bytes, live_peak_bytes: packing.live_peak, gave_up: packing.gave_up },
        allocators: all.iter().map(|found| figures(device, found)).collect(),
    };
    let text = serde_json::to_string_pretty(&document).map_err(std::io::Error::from)?;
    Ok(visible::json(text + "\n"))
}

fn figures(device: &DeviceView<'_>, found: &WhatIf) -> AllocatorFigures {
    AllocatorFigures {
        allocator: found.model.to_string(),
        setting: found.model.how(),
        live_peak_bytes: found.live_peak,
        reserved_peak_bytes: found.reserved_peak,
        peak_ns: found.peak_ns,
        live_then_bytes: found.live_then,
        free_then_bytes: found.free_then,
        segments_then: found.segments_then,
        reserved_end_bytes: found.reserved_end,
        records: found.records,
        reserved_bytes: found.columns.clone(),
        runs_out: found.runs_out.as_ref().map(|out| refused(device, out)),
    }
}

fn refused(device: &DeviceView<'_>, out: &RunsOut) -> RefusedFigures {
    RefusedFigures {
        time_ns: out.time_ns,
        records: out.records,
        size_bytes: out.size,
        live_bytes: out.live,
        reserved_bytes: out.reserved,
        free_bytes: out.free,
        largest_free_bytes: out.largest_gap,
        line: out.block.map(|block| crate::analysis::line_label(device.data(), block.stack.0)),
    }
}
