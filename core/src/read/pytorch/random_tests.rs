//! Random histories of an allocator. A snapshot shows the end of each, and reading it must give what happened.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::fixtures::{Python, block, entry, segment, snapshot};
use super::tests::check;
use crate::ReadOptions;
use crate::random::programs;
use crate::snapshot::{DeviceSnapshot, Record, RecordKind, Replay};

const SLOT: u64 = 1 << 20;
/// Slots of blocks, four in a segment.
const SLOTS: u64 = 16;

/// An event of a slot: if the slot is free, it is allocated with this size, otherwise freed.
type RandomStep = (u64, u64);

/// One event as the allocator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Happened {
    kind: RecordKind,
    address: u64,
    size: u64,
    time_us: u64,
}

fn history(steps: &[RandomStep]) -> (Vec<Happened>, BTreeMap<u64, u64>) {
    let (mut live, mut all) = (BTreeMap::new(), Vec::new());
    for (time_us, &(slot, size)) in (0..).zip(steps) {
        let address = (1 + slot) * SLOT;
        let (kind, size) = match live.remove(&address) {
            Some(size) => (RecordKind::Free, size),
            None => (RecordKind::Alloc, size),
        };
        if kind == RecordKind::Alloc {
            live.insert(address, size);
        }
        all.push(Happened { kind, address, size, time_us });
    }
    (all, live)
}

/// The snapshot of a history, whose log begins late.
fn snapshot_of(log: &[Happened], live: &BTreeMap<u64, u64>) -> Python {
    let entries = |event: &Happened| {
        let entry = |action| entry(action, event.address, event.size, event.time_us);
        match event.kind {
            RecordKind::Alloc => vec![entry("alloc")],
            RecordKind::Free => vec![entry("free_requested"), entry("free_completed")],
        }
    };
    let in_slot = |slot: u64| {
        let address = (1 + slot) * SLOT;
        match live.get(&address) {
            Some(size) => block(address, SLOT, *size, "active_allocated"),
            None => block(address, SLOT, 0, "inactive"),
        }
    };
    let segments =
        (0..SLOTS / 4).map(|n| segment(0, (1 + 4 * n) * SLOT, 4 * SLOT, (4 * n..4 * n + 4).map(in_slot).collect()));
    snapshot(segments.collect(), vec![log.iter().flat_map(entries).collect()])
}

/// The most bytes that were live at the beginning of the log or after any of its events.
fn peak(log: &[Happened], at_start: u64) -> u64 {
    let mut now = at_start;
    let totals = log.iter().map(|event| {
        now = if event.kind == RecordKind::Alloc { now + event.size } else { now - event.size };
        now
    });
    totals.max().unwrap_or(0).max(at_start)
}

fn compare(device: &DeviceSnapshot, log: &[Happened], live: &BTreeMap<u64, u64>, before: &BTreeMap<u64, u64>) {
    let first = log.first().map_or(0, |event| event.time_us);
    let plain = |record: &Record| Happened {
        kind: record.kind,
        address: record.address,
        size: record.size,
        time_us: first + record.time_ns / 1000,
    };
    assert_eq!(device.records.iter().map(plain).collect::<Vec<_>>(), log);
    assert_eq!(device.live.iter().map(|block| (block.address, block.size)).collect::<BTreeMap<_, _>>(), *live);
    assert_eq!(device.overwritten, before.len() as u64);
    assert_eq!(device.peak.bytes, peak(log, before.values().sum()));
    assert_eq!(device.stats.reserved_bytes.peak, SLOTS * SLOT);
}

fn ends_in_its_live_blocks(device: &DeviceSnapshot) {
    let mut replay = Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    assert_eq!(replay.blocks(), device.live);
    assert_eq!(device.peak.blocks.iter().map(|block| block.size).sum::<u64>(), device.peak.bytes);
}

proptest! {
    #![proptest_config(programs(100))]

    #[test]
    fn a_log_from_any_moment_on_is_read_as_it_happened(
        steps in prop::collection::vec((0..SLOTS, 1..SLOT), 1..120),
        from in any::<prop::sample::Index>(),
    ) {
        let (all, live) = history(&steps);
        let from = from.index(all.len());
        let (_, before) = history(&steps[..from]);
        let log = &all[from..];
        let data = ReadOptions::default().parse(&snapshot_of(log, &live).pickled(4)).unwrap();
        check(&data);
        compare(&data.devices[0], log, &live, &before);
    }

    /// A pickle with one changed byte is either read or refused.
    #[test]
    fn damaged_pickles_are_no_trouble(
        steps in prop::collection::vec((0..SLOTS, 1..SLOT), 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        protocol in prop::sample::select(vec![0u8, 2, 4]),
    ) {
        let (all, live) = history(&steps);
        let mut bytes = snapshot_of(&all, &live).pickled(protocol);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(data) = ReadOptions::default().parse(&bytes) {
            data.devices.iter().for_each(ends_in_its_live_blocks);
            crate::export::Text::default().render(&data).unwrap();
            let mut capture = Vec::new();
            crate::capture::write(&data, usize::MAX, &mut capture).unwrap();
            assert!(crate::ReadOptions::default().parse(&capture).unwrap() == data, "a capture of it differs");
        }
    }
}
