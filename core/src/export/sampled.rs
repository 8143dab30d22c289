//! Estimates, marked as such: what is said where only a sample of the small blocks was recorded.

use serde_json::{Value, json};

use crate::snapshot::{Counted, DeviceSnapshot};
use crate::units::{Bytes, grouped, round};

/// What stands before an estimate in words; nothing before a figure that is exact.
pub(super) fn about(interval: Option<u64>) -> &'static str {
    if interval.is_some() { "~" } else { "" }
}

/// What stands behind the name of a series of estimates.
pub(super) fn behind(interval: Option<u64>) -> &'static str {
    if interval.is_some() { ", estimated" } else { "" }
}

/// The note beside figures that are estimates.
pub(super) fn note(interval: Option<u64>) -> Option<String> {
    let interval = round(interval?);
    Some(format!("estimates from a sample of one in {interval}; blocks of {interval} or more are exact"))
}

/// The same of files that show the recorded blocks as they are.
pub(super) fn blocks_note(interval: Option<u64>) -> Option<String> {
    let interval = round(interval?);
    Some(format!("blocks smaller than {interval} are a sample of one in {interval}, in their real sizes"))
}

/// What is an estimate and what was counted.
pub(super) fn lines(device: &DeviceSnapshot) -> Vec<String> {
    let Some(note) = note(device.sample_interval()) else { return Vec::new() };
    let mut lines = vec![format!("Sampled          {note}")];
    if let Some(Counted { now, before, .. }) = device.stats.counted {
        let live = format!("{} ({} bytes) live now", Bytes(now), grouped(now));
        lines.push(format!("Counted exactly  {live}; the peak is the most that was counted when a block was recorded"));
        if before > 0 {
            let before = Bytes(before);
            lines.push(format!(
                "                 {before} were live in small blocks before recording; the sample has none of them"
            ));
        }
    }
    lines
}

/// The same for JSON.
pub(super) fn table(device: &DeviceSnapshot) -> Option<Value> {
    let interval = device.sample_interval()?;
    Some(json!({
        "interval_bytes": interval,
        "note": note(Some(interval)),
        "recorded_live_blocks": device.live.len(),
        "recorded_live_bytes": device.live.iter().map(|block| block.size).fold(0, u64::saturating_add),
        "counted_now_bytes": device.stats.counted.map(|counted| counted.now),
        "counted_at_peak_bytes": device.stats.counted.map(|counted| counted.at_peak),
        "counted_before_recording_bytes": device.stats.counted.map(|counted| counted.before),
    }))
}

#[cfg(test)]
#[path = "sampled_tests.rs"]
mod tests;
