//! The times before the log of a stream with a budget, by line and by scope.

use std::cmp::Reverse;

use serde::Serialize;

use super::key_timeline::add;
use super::labels::{KeySource, Labels};
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
    pub by_line: Vec<OlderHolder>,
    /// The scopes that held most of it.
    pub by_scope: Vec<OlderHolder>,
}

/// What a line or a scope held at an [`OlderPeak`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OlderHolder {
    /// The line or scope.
    pub label: String,
    /// Bytes.
    pub bytes: u64,
}

/// The times before the device's log, oldest first.
pub fn older_peaks(device: &DeviceView<'_>) -> Vec<OlderPeak> {
    if device.older.is_empty() {
        return Vec::new();
    }
    let mut labels = [Key::Line, Key::Scope].map(|key| Labels::by(device, key, 0));
    device.older.iter().map(|time| peak_of(time, &mut labels)).collect()
}

fn peak_of(time: &OlderTime, labels: &mut [Labels<'_>; 2]) -> OlderPeak {
    let [by_line, by_scope] = labels.each_mut().map(|labels| holders(time, labels));
    let OlderTime { from_ns, to_ns, records, lacks_records, highest: bytes, highest_ns: time_ns, .. } = *time;
    OlderPeak { from_ns, to_ns, records, lacks_records, bytes, time_ns, by_line, by_scope }
}

fn holders(time: &OlderTime, labels: &mut Labels<'_>) -> Vec<OlderHolder> {
    let sums = sums(time, labels, |_, at_highest| at_highest);
    let holder = |(label, bytes): (&str, u64)| OlderHolder { label: label.to_owned(), bytes };
    let mut holders: Vec<OlderHolder> = labels.names().zip(sums).filter(|(_, bytes)| *bytes > 0).map(holder).collect();
    holders.sort_by(|a, b| (Reverse(a.bytes), &a.label).cmp(&(Reverse(b.bytes), &b.label)));
    holders
}

/// The sums of the least or of what was held at the highest moment, of the time's stacks or scopes, by the numbers of their labels.
pub(super) fn sums(time: &OlderTime, labels: &mut Labels<'_>, bytes: fn(u64, u64) -> u64) -> Vec<u64> {
    let (mut sums, source) = (Vec::new(), labels.source());
    let mut see = |of, least, at_highest| add(&mut sums, labels.number_at(of), bytes(least, at_highest));
    match source {
        KeySource::Stack => time.stacks.iter().for_each(|row| see(row.of.0, row.least, row.at_highest)),
        KeySource::Context => time.scopes.iter().for_each(|row| see(row.of.0, row.least, row.at_highest)),
        KeySource::Block => {}
    }
    sums
}

/// Whether the older times are known by this source of labels.
pub(super) fn are_known(times: &[OlderTime], source: KeySource) -> bool {
    match source {
        KeySource::Stack => true,
        KeySource::Context => times.iter().all(OlderTime::has_scopes),
        KeySource::Block => false,
    }
}
