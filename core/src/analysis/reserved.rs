//! Reserved bytes over time, computed from the segments that the driver reported.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice::Iter;

use super::log;
use crate::snapshot::{DeviceSnapshot, Record, RecordKind, SegmentRecord};

/// Tracks reserved bytes over the log. A block outside of all segments counts with its own bytes.
pub(crate) struct Reserved<'a> {
    segments: Peekable<Iter<'a, SegmentRecord>>,
    known: BTreeMap<u64, u64>,
    device: &'a DeviceSnapshot,
    now: i128,
}

pub(crate) fn is_reported(device: &DeviceSnapshot) -> bool {
    !device.segment_records.is_empty() || device.segments.iter().any(|segment| !segment.estimated)
}

impl<'a> Reserved<'a> {
    /// `None` if no segment was reported. Reserved bytes then equal allocated bytes.
    pub(crate) fn of(device: &'a DeviceSnapshot) -> Option<Self> {
        if !is_reported(device) {
            return None;
        }
        let known = at_log_start(device);
        let walk = |now| Self { segments: device.segment_records.iter().peekable(), known: known.clone(), device, now };
        // The current value minus all changes is the initial value.
        let mut changes = walk(0);
        device.records.iter().for_each(|record| {
            changes.before(record.time_ns, |_, _| {});
            changes.after(record);
        });
        changes.before(u64::MAX, |_, _| {});
        Some(walk(i128::from(device.stats.reserved_bytes.current) - changes.now))
    }

    /// Applies the segment records up to this time. After each of them, calls `each` with its time and the reserved
    /// bytes.
    pub(crate) fn before(&mut self, time_ns: u64, mut each: impl FnMut(u64, u64)) {
        while let Some(segment) = self.segments.next_if(|segment| segment.time_ns <= time_ns) {
            match segment.kind {
                RecordKind::Alloc => {
                    self.known.insert(segment.address, segment.size);
                    self.now += i128::from(segment.size);
                }
                RecordKind::Free => {
                    self.known.remove(&segment.address);
                    self.now -= i128::from(segment.size);
                }
            }
            each(segment.time_ns, self.bytes());
        }
    }

    pub(crate) fn after(&mut self, record: &Record) {
        let segment = self.known.range(..=record.address).next_back();
        if segment.is_none_or(|(start, size)| record.address - start >= *size) {
            self.now += i128::from(log::change(self.device, record));
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.now).unwrap_or(0)
    }
}

/// The reported segments at the beginning of the log, as sizes by address: the current ones, with all segment records
/// undone.
pub(crate) fn at_log_start(device: &DeviceSnapshot) -> BTreeMap<u64, u64> {
    let told = device.segments.iter().filter(|segment| !segment.estimated);
    let mut there: BTreeMap<u64, u64> = told.map(|segment| (segment.address, segment.size)).collect();
    for segment in device.segment_records.iter().rev() {
        match segment.kind {
            RecordKind::Alloc => _ = there.remove(&segment.address),
            RecordKind::Free => _ = there.insert(segment.address, segment.size),
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;

    #[test]
    fn blocks_in_segments_are_not_counted_besides() {
        let (size, mut trace) = (0x2000, Story::cuda(0));
        trace.at(500).segment_alloc(0x1000, size);
        trace.at(1_000).alloc("inside", 2000).address(0x1000);
        trace.at(2_000).alloc("inside, too", 1000).address(0x2000);
        trace.at(3_000).alloc("outside", 500).address(0x3000);
        trace.at(4_000).free("inside, too");
        trace.at(5_000).alloc("outside, too", 64).address(0x4000);
        trace.at(6_000).free("outside, too");
        let device = trace.device();
        let mut reserved = Reserved::of(&device).unwrap();
        assert_eq!(reserved.bytes(), 0);
        let after = |record: &Record| {
            reserved.before(record.time_ns, |_, _| {});
            reserved.after(record);
            reserved.bytes() - size
        };
        assert_eq!(device.records.iter().map(after).collect::<Vec<_>>(), [0, 0, 500, 500, 564, 500]);
    }
}
