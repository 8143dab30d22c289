//! Computes the peak and counters of a device from its log.

use crate::snapshot::{Block, DeviceSnapshot, MemoryStats, Peak, RecordKind, Replay, Stat};

fn up(stat: &mut Stat, by: u64) {
    stat.current += by;
    stat.allocated += by;
    stat.peak = stat.peak.max(stat.current);
}

fn down(stat: &mut Stat, by: u64) {
    stat.current = stat.current.saturating_sub(by);
    stat.freed += by;
}

/// Sets the peak and counters. `before` are the blocks that existed when the log began.
pub(super) fn count(device: &mut DeviceSnapshot, before: &[Block], num_ooms: u64) {
    let (mut bytes, mut blocks) = (Stat::default(), Stat::default());
    before.iter().for_each(|block| {
        up(&mut bytes, block.size);
        up(&mut blocks, 1);
    });
    // Number of records up to the peak.
    let mut until = 0;
    for (at, record) in device.records.iter().enumerate() {
        match record.kind {
            RecordKind::Alloc => {
                let highest = bytes.peak;
                up(&mut bytes, record.size);
                up(&mut blocks, 1);
                until = if bytes.peak > highest { at + 1 } else { until };
            }
            RecordKind::Free => {
                down(&mut bytes, record.size);
                down(&mut blocks, 1);
            }
        }
    }
    device.peak = peak(device, until, bytes.peak);
    let reserved = reserved(device);
    device.stats = MemoryStats {
        allocated_bytes: bytes,
        active_bytes: bytes,
        reserved_bytes: reserved.unwrap_or(bytes),
        allocations: blocks,
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
        ..Peak::default()
    }
}

/// The reserved bytes; `None` if the file has no segments.
fn reserved(device: &DeviceSnapshot) -> Option<Stat> {
    let told = device.segments.iter().filter(|segment| !segment.estimated);
    let now: u64 = told.map(|segment| segment.size).sum();
    let mut stat = Stat::default();
    if now == 0 && device.segment_records.is_empty() {
        return None;
    }
    let came = |kind| {
        let records = device.segment_records.iter().filter(move |segment| segment.kind == kind);
        records.map(|segment| segment.size).sum::<u64>()
    };
    up(&mut stat, (now + came(RecordKind::Free)).saturating_sub(came(RecordKind::Alloc)));
    for segment in &device.segment_records {
        match segment.kind {
            RecordKind::Alloc => up(&mut stat, segment.size),
            RecordKind::Free => down(&mut stat, segment.size),
        }
    }
    Some(stat)
}
