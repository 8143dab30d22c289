//! What a device's allocator had reserved over time, as far as its driver tells of segments.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice::Iter;

use super::log;
use crate::snapshot::{DeviceSnapshot, Record, RecordKind, SegmentRecord};

/// Walks along the log. Blocks outside of all segments count by themselves.
pub(crate) struct Reserved<'a> {
    segments: Peekable<Iter<'a, SegmentRecord>>,
    /// Those that are there, by address.
    known: BTreeMap<u64, u64>,
    device: &'a DeviceSnapshot,
    now: i128,
}

impl<'a> Reserved<'a> {
    /// `None` where the driver never told: what is reserved is what is allocated.
    pub(crate) fn of(device: &'a DeviceSnapshot) -> Option<Self> {
        let walk =
            |now| Self { segments: device.segment_records.iter().peekable(), known: BTreeMap::new(), device, now };
        if device.segment_records.is_empty() {
            return None;
        }
        // What is reserved now is known, and so is every change.
        let mut changes = walk(0);
        device.records.iter().for_each(|record| {
            changes.before(record.time_ns, |_, _| {});
            changes.after(record);
        });
        changes.before(u64::MAX, |_, _| {});
        Some(walk(i128::from(device.stats.reserved_bytes.current) - changes.now))
    }

    /// Segments that came and went until then; `each` is called with the time and the bytes after each.
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

    /// A block came or went.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing;

    /// The first two blocks lie in a segment, the others in none.
    #[test]
    fn blocks_in_segments_are_not_counted_besides() {
        let mut device = testing::two_lines_and_a_temporary().devices.remove(0);
        let (record, kind) = (device.records[0], RecordKind::Alloc);
        let Record { address, stack, context, thread, .. } = record;
        let (time_ns, size, estimated) = (500, 0x2000, false);
        device.segment_records =
            vec![SegmentRecord { time_ns, address, size, kind, estimated, stack, context, thread }];
        device.stats.reserved_bytes.current = size + 500;
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
