//! Older times, by line and by scope: times before the log whose records were deleted, in a stream with a budget.

use std::cmp::Reverse;

use serde::Serialize;

use super::key_timeline::add;
use super::labels::{KeySource, Labels};
use super::rows::Key;
use crate::recording::DeviceView;
use crate::snapshot::OlderTime;

/// An older time: a time span whose records were deleted. Its highest moment is kept, with the lines and scopes that
/// held most then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OlderPeak {
    /// Beginning of the time span, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// End of the time span, in nanoseconds since the recording began.
    pub to_ns: u64,
    /// Number of records that the time span had.
    pub records: u64,
    /// True if some records are missing. The true maximum may then be higher than `bytes`.
    pub lacks_records: bool,
    /// The most bytes that were live at once, without blocks below the threshold; in a sample, an estimate.
    pub bytes: u64,
    /// When `bytes` was first reached, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// The lines that held most of `bytes`, the largest first. Other lines held the rest.
    pub by_line: Vec<OlderHolder>,
    /// The scopes that held most of `bytes`, the largest first. Empty if an older version of memtrace wrote the
    /// recording.
    pub by_scope: Vec<OlderHolder>,
}

/// Memory of a line or a scope at the highest moment of an older time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OlderHolder {
    /// The line or scope.
    pub label: String,
    /// Live bytes.
    pub bytes: u64,
}

/// The older times of a device, oldest first.
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

/// The bytes of an older time's stacks or scopes, summed for each label by the label's number. `bytes` gets the fewest
/// bytes that a stack or scope held in that time, and its bytes at the highest moment; it returns one of the two.
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

/// Whether older times have data for this source of labels.
pub(super) fn are_known(times: &[OlderTime], source: KeySource) -> bool {
    match source {
        KeySource::Stack => true,
        KeySource::Context => times.iter().all(OlderTime::has_scopes),
        KeySource::Block => false,
    }
}
