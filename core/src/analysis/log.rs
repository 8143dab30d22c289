//! The log with the device's running total after each record.

use crate::error::Error;
use crate::snapshot::{DeviceSnapshot, Record, RecordKind, Weight};
use crate::units::seconds;

/// A record and the device's total after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) record: &'a Record,
    /// Live bytes after the record, including those from before the recording.
    pub(crate) allocated: u64,
    pub(crate) weight: Weight,
    /// Bytes that the record added; negative for a free.
    pub(crate) change: i64,
}

/// Live bytes just before the log's oldest record.
///
/// Every change of the total has a record, even frees of blocks from before the recording. So the current total minus
/// the log's changes is exact, whatever the ring buffer has overwritten. In a sample, the current total and the
/// changes are estimates by weight.
pub(crate) fn allocated_at_start(device: &DeviceSnapshot) -> u64 {
    let undone = |total: i128, record: &Record| total - i128::from(change(device, record));
    let total = device.records.iter().fold(i128::from(device.live_by_sizes()), undone);
    u64::try_from(total).unwrap_or(0)
}

/// The log, oldest first.
pub(crate) fn entries(device: &DeviceSnapshot) -> impl Iterator<Item = Entry<'_>> {
    entries_after(device, allocated_at_start(device))
}

/// The log, oldest first, for callers that already have [`allocated_at_start`].
pub(crate) fn entries_after(device: &DeviceSnapshot, at_start: u64) -> impl Iterator<Item = Entry<'_>> {
    let mut allocated = at_start;
    device.records.iter().map(move |record| {
        let weight = device.weight(record.size);
        let change = signed(record, weight);
        allocated = allocated.saturating_add_signed(change);
        Entry { record, allocated, weight, change }
    })
}

/// The records with their weights and the live bytes after them.
pub fn running_totals(device: &DeviceSnapshot) -> impl Iterator<Item = (&Record, Weight, u64)> {
    entries(device).map(|entry| (entry.record, entry.weight, entry.allocated))
}

/// Bytes that the record adds to its device's total, by weight; negative for a free.
pub(crate) fn change(device: &DeviceSnapshot, record: &Record) -> i64 {
    signed(record, device.weight(record.size))
}

fn signed(record: &Record, weight: Weight) -> i64 {
    let bytes = i64::try_from(weight.bytes).unwrap_or(i64::MAX);
    if record.kind == RecordKind::Alloc { bytes } else { -bytes }
}

/// The index of the record of the alloc that reached the peak.
pub(crate) fn peak_record(device: &DeviceSnapshot) -> Option<usize> {
    let seq = Some(device.peak.seq?);
    device.records.iter().position(|record| record.kind == RecordKind::Alloc && record.alloc_seq == seq)
}

/// Start of the log in nanoseconds: 0, or the time of the oldest record if older ones were overwritten.
pub fn start_ns(device: &DeviceSnapshot) -> u64 {
    let oldest = device.records.first().filter(|_| device.overwritten > 0);
    oldest.map_or(0, |record| record.time_ns)
}

/// Returns an error if records after this time have been overwritten.
pub(crate) fn reaches_back_to(device: &DeviceSnapshot, ns: u64) -> Result<(), Error> {
    let start = start_ns(device);
    if ns >= start {
        return Ok(());
    }
    Err(Error::moment(format!(
        "the log begins at {:.3} s: the records before it were overwritten; a larger MEMTRACE_MAX_ENTRIES keeps more",
        seconds(start)
    )))
}
