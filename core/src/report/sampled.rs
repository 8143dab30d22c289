//! Marks of estimates in reports of a sample.

use crate::snapshot::{Counted, DeviceSnapshot};
use crate::units::{Bytes, grouped, round};

/// Prefix of an estimate.
pub(crate) const ABOUT: &str = "~";

/// The prefix, if there is a sampling interval.
pub(crate) fn about(interval: Option<u64>) -> &'static str {
    if interval.is_some() { ABOUT } else { "" }
}

/// The suffix of a series' name, if there is a sampling interval.
pub(crate) fn behind(interval: Option<u64>) -> &'static str {
    if interval.is_some() { ", estimated" } else { "" }
}

/// The note on a table of estimates.
pub(crate) fn note(interval: Option<u64>) -> Option<String> {
    let interval = round(interval?);
    Some(format!("estimates from a sample, one per {interval}; blocks of {interval} or more are exact"))
}

/// The note in files that show recorded blocks with their own sizes.
pub(crate) fn blocks_note(interval: Option<u64>) -> Option<String> {
    let interval = round(interval?);
    Some(format!("blocks smaller than {interval} are a sample of one in {interval}, in their real sizes"))
}

pub(super) fn lines(device: &DeviceSnapshot) -> Vec<(&'static str, String)> {
    let Some(note) = note(device.sample_interval()) else { return Vec::new() };
    let mut lines = vec![("Sampled", note)];
    if let Some(Counted { now, before, .. }) = device.stats.counted {
        let live = format!("{} ({} bytes) live at the end", Bytes(now), grouped(now));
        lines.push(("Counted exactly", live));
        lines.push(("", "the peak is the largest count taken when a block was recorded".to_owned()));
        if before > 0 {
            let before = Bytes(before);
            lines.push(("", format!("{before} were in small blocks from before the recording, which are not sampled")));
        }
    }
    lines
}
