//! The times before the log of a stream with a budget, by line.

use std::cmp::Reverse;

use serde::Serialize;

use super::key_timeline::add;
use super::labels::Labels;
use super::rows::Key;
use crate::recording::DeviceView;
use crate::snapshot::OlderTime;

/// A time whose records were deleted: its highest moment, and the lines that held most then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OlderPeak {
    /// Its begin in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How many records it had.
    pub records: u64,
    /// Some records are missing, so that the highest may have been higher.
    pub lacks_records: bool,
    /// The most bytes that were live at once, without blocks below the threshold.
    pub bytes: u64,
    /// When that was first so.
    pub time_ns: u64,
    /// The lines that held most of it, the largest first. What is missing to `bytes` was held by others.
    pub by_line: Vec<OlderLine>,
}

/// What a line held at an [`OlderPeak`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OlderLine {
    /// The line.
    pub label: String,
    /// Bytes.
    pub bytes: u64,
}

/// The times before the device's log, oldest first.
pub fn older_peaks(device: &DeviceView<'_>) -> Vec<OlderPeak> {
    if device.older.is_empty() {
        return Vec::new();
    }
    let mut labels = Labels::by(device, Key::Line, 0);
    device.older.iter().map(|time| peak_of(time, &mut labels)).collect()
}

fn peak_of(time: &OlderTime, labels: &mut Labels<'_>) -> OlderPeak {
    let mut sums = Vec::new();
    time.stacks.iter().for_each(|row| add(&mut sums, labels.number_at(row.stack.0), row.at_highest));
    let line = |(label, bytes): (&str, u64)| OlderLine { label: label.to_owned(), bytes };
    let mut by_line: Vec<OlderLine> = labels.names().zip(sums).filter(|(_, bytes)| *bytes > 0).map(line).collect();
    by_line.sort_by(|a, b| (Reverse(a.bytes), &a.label).cmp(&(Reverse(b.bytes), &b.label)));
    let OlderTime { from_ns, to_ns, records, lacks_records, highest: bytes, highest_ns: time_ns, .. } = *time;
    OlderPeak { from_ns, to_ns, records, lacks_records, bytes, time_ns, by_line }
}
