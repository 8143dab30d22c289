//! Refused frees in streamed captures: the free, the chunks in between, and the undo record.

use std::num::NonZeroU64;

use super::Counters;
use super::rebuild::DeviceParts;
use crate::snapshot::{Block, Device, DeviceSnapshot, MemoryStats, Peak, Record, RecordKind, Sampling, Stat};

fn block(address: u64, seq: u64) -> Block {
    Block { address, size: 100, seq: NonZeroU64::new(seq), time_ns: seq, ..Block::default() }
}

fn alloc(block: &Block) -> Record {
    Record::alloc_of(block)
}

fn free(block: &Block) -> Record {
    Record { kind: RecordKind::Free, time_ns: 9, ..Record::alloc_of(block) }
}

/// A device with the records `before` and `after`, whose peak has all of its live blocks. In between, records are
/// skipped if there is a list of the blocks that were live then.
fn device(before: &[Record], skipped: Option<&[Block]>, after: &[Record], live: &[Block]) -> DeviceSnapshot {
    let mut parts = DeviceParts::default();
    let current = Stat { current: 200, ..Stat::default() };
    let peak = Peak { bytes: 200, seq: NonZeroU64::new(2), ..Peak::default() };
    let stats = MemoryStats { allocated_bytes: current, ..MemoryStats::default() };
    parts.new_records().extend_from_slice(before);
    if let Some(live) = skipped {
        parts.skip(7, 0, 20);
        parts.set_live(live.to_vec());
    }
    parts.new_records().extend_from_slice(after);
    parts.set_live(live.to_vec());
    parts.new_peak = Some(live.to_vec());
    parts.set_counters(Counters { peak, stats, ..Counters::default() });
    parts.finish(Device::Cpu, &[], Sampling::default(), 10_000).unwrap()
}

#[test]
fn a_refused_free_is_dropped_and_its_block_stays_live() {
    let (a, b, c) = (block(0x10, 1), block(0x20, 2), block(0x30, 3));
    let (first, last) = ([alloc(&a), alloc(&b), free(&a)], [Record::again(&a), alloc(&c), free(&c)]);
    let live = [a, b];
    let whole = device(&first, None, &last, &live);
    // The free is in the log, then skipped.
    let known = device(&first, Some(&[b]), &last, &live);
    let skipped = device(&first[..2], Some(&[b]), &last, &live);
    for device in [&whole, &known, &skipped] {
        assert_eq!(device.records, [alloc(&a), alloc(&b), alloc(&c), free(&c)]);
        assert_eq!((&device.live, &device.peak.blocks), (&vec![a, b], &vec![a, b]));
    }
    assert_eq!((whole.gaps.len(), known.gaps[0].at, skipped.gaps[0].at), (0, 2, 2));
    // The alloc is skipped, too.
    let unknown = device(&[alloc(&b)], Some(&[b]), &[Record::again(&a)], &live);
    let records: Vec<_> = unknown.records.iter().map(|record| record.block().seq).collect();
    assert_eq!((records, &unknown.live), (vec![b.seq, a.seq], &vec![a, b]));
}

/// The log begins between the free and its undo record.
#[test]
fn a_block_whose_refused_free_is_lost_is_live_from_the_start() {
    let (a, b) = (block(0x10, 1), block(0x20, 2));
    let mut parts = DeviceParts::default();
    parts.gap(3).unwrap();
    parts.set_live(vec![b]);
    parts.new_records().push(Record::again(&a));
    parts.skip(7, 0, 20);
    parts.set_live(vec![a, b]);
    let device = parts.finish(Device::Cpu, &[], Sampling::default(), 10_000).unwrap();
    assert_eq!((device.records, device.live), (vec![], vec![a, b]));
}
