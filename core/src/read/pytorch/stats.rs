//! Computes the peak and counters of a device from its log.

use crate::snapshot::{Block, DeviceSnapshot, MemoryStats, Peak, RecordKind, Replay, Stat};

/// A quantity that goes up and down.
#[derive(Default)]
struct Level(Stat);

impl Level {
    fn up(&mut self, by: u64) {
        self.0.current += by;
        self.0.allocated += by;
        self.0.peak = self.0.peak.max(self.0.current);
    }

    fn down(&mut self, by: u64) {
        self.0.current = self.0.current.saturating_sub(by);
        self.0.freed += by;
    }
}

/// Sets the peak and counters. `before` are the blocks that existed when the log began.
pub(super) fn count(device: &mut DeviceSnapshot, before: &[Block], num_ooms: u64) {
    let (mut bytes, mut blocks) = (Level::default(), Level::default());
    before.iter().for_each(|block| {
        bytes.up(block.size);
        blocks.up(1);
    });
    // Number of records up to the peak.
    let mut until = 0;
    for (at, record) in device.records.iter().enumerate() {
        match record.kind {
            RecordKind::Alloc => {
                let highest = bytes.0.peak;
                bytes.up(record.size);
                blocks.up(1);
                until = if bytes.0.peak > highest { at + 1 } else { until };
            }
            RecordKind::Free => {
                bytes.down(record.size);
                blocks.down(1);
            }
        }
    }
    device.peak = peak(device, until, bytes.0.peak);
    let reserved = reserved(device);
    device.stats = MemoryStats {
        allocated_bytes: bytes.0,
        active_bytes: bytes.0,
        reserved_bytes: reserved.unwrap_or(bytes.0),
        allocations: blocks.0,
        num_ooms,
        ..MemoryStats::default()
    };
}

fn peak(device: &DeviceSnapshot, until: usize, bytes: u64) -> Peak {
    let mut replay = Replay::at_log_start(device);
    let records = device.records.get(..until).unwrap_or_default();
    records.iter().for_each(|record| replay.apply(record));
    let made = records.last();
    Peak {
        bytes,
        time_ns: made.map_or(0, |alloc| alloc.time_ns),
        seq: made.and_then(|alloc| alloc.alloc_seq),
        blocks: replay.blocks(),
        not_recorded: 0,
        below_threshold: 0,
    }
}

/// The reserved bytes; `None` if the file has no segments.
fn reserved(device: &DeviceSnapshot) -> Option<Stat> {
    let told = device.segments.iter().filter(|segment| !segment.estimated);
    let now: u64 = told.map(|segment| segment.size).sum();
    let mut level = Level::default();
    if now == 0 && device.segment_records.is_empty() {
        return None;
    }
    let came = |kind| {
        let records = device.segment_records.iter().filter(move |segment| segment.kind == kind);
        records.map(|segment| segment.size).sum::<u64>()
    };
    level.up((now + came(RecordKind::Free)).saturating_sub(came(RecordKind::Alloc)));
    for segment in &device.segment_records {
        match segment.kind {
            RecordKind::Alloc => level.up(segment.size),
            RecordKind::Free => level.down(segment.size),
        }
    }
    Some(level.0)
}
