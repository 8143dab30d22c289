//! The log of a device with the bytes that were live after each record.

use crate::snapshot::{DeviceSnapshot, Record, RecordKind, Weight};

/// A record and the device's total after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) record: &'a Record,
    /// Bytes live, those from before the recording included.
    pub(crate) allocated: u64,
    /// What the record stands for.
    pub(crate) weight: Weight,
    /// What the record added to it; negative for a free.
    pub(crate) change: i64,
}

/// Bytes live just before the oldest record that the log still holds.
///
/// Every change of the total has its record, frees of blocks from before the recording as well, so
/// today's total minus the log's changes is exact whatever the ring has overwritten. Of a sample both are estimates,
/// by the sizes of its blocks.
pub(crate) fn allocated_at_start(device: &DeviceSnapshot) -> u64 {
    let undone = |total: i128, record: &Record| total - i128::from(change(device, record));
    let total = device.records.iter().fold(i128::from(device.live_by_sizes()), undone);
    u64::try_from(total).unwrap_or(0)
}

/// The log, oldest first.
pub(crate) fn entries(device: &DeviceSnapshot) -> impl Iterator<Item = Entry<'_>> {
    entries_after(device, allocated_at_start(device))
}

/// The log, oldest first, where [`allocated_at_start`] is known already.
pub(crate) fn entries_after(device: &DeviceSnapshot, at_start: u64) -> impl Iterator<Item = Entry<'_>> {
    let mut allocated = at_start;
    device.records.iter().map(move |record| {
        let weight = device.weight(record.size);
        let change = signed(record, weight);
        allocated = allocated.saturating_add_signed(change);
        Entry { record, allocated, weight, change }
    })
}

/// What the record adds to its device's total, or its block stands for: negative for a free.
pub(crate) fn change(device: &DeviceSnapshot, record: &Record) -> i64 {
    signed(record, device.weight(record.size))
}

fn signed(record: &Record, weight: Weight) -> i64 {
    let bytes = i64::try_from(weight.bytes).unwrap_or(i64::MAX);
    if record.kind == RecordKind::Alloc { bytes } else { -bytes }
}

/// When the log begins: at the recording's start, or at the oldest record if older ones were overwritten.
pub(crate) fn start_ns(device: &DeviceSnapshot) -> u64 {
    let oldest = device.records.first().filter(|_| device.overwritten > 0);
    oldest.map_or(0, |record| record.time_ns)
}
