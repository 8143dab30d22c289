//! A recording under construction: from records to what follows from them.

use std::collections::HashMap;
use std::num::NonZeroU64;

use memtrace_core::snapshot::{
    Block, CodeAddress, ContextId, ContextNode, DeviceSnapshot, Frame, Mark, Peak, Record, RecordKind, ScopeStats,
    Segment, SegmentRecord, StackId, Stacks, ThreadId, segments,
};
use memtrace_core::{Device, MemoryStats, SnapshotData, Stat};

/// Bytes of a block, and from one block's address to the next.
pub(super) const SIZE: u64 = 4096;
pub(super) const APART: u64 = 2 * SIZE;
pub(super) const FIRST: u64 = 1 << 28;

/// The alloc with this number, from 0, at an address of its own.
pub(super) fn alloc(number: u64) -> Record {
    let block = Block {
        address: FIRST + number * APART,
        size: SIZE,
        seq: NonZeroU64::new(number + 1),
        time_ns: 1000 * number,
        stack: StackId(1),
        context: ContextId::ROOT,
        thread: ThreadId(0),
        stream: 0,
        memory: Default::default(),
    };
    Record::alloc_of(&block)
}

/// Its free, at this time.
pub(super) fn free(of: &Record, time_ns: u64) -> Record {
    Record { time_ns, kind: RecordKind::Free, stack: StackId::NONE, ..*of }
}

/// A scope that is entered or left.
pub(super) fn mark(time_ns: u64, context: u64, enter: bool) -> Mark {
    Mark { time_ns, context: ContextId(context as u32), thread: ThreadId(0), enter }
}

/// A program without a device: stack 1 is a line of it.
pub(super) fn program() -> SnapshotData {
    let mut data = SnapshotData::default();
    (data.process.program, data.process.working_dir) = ("shapes".into(), "/w".into());
    data.process.duration_ns = 1 << 40;
    (data.settings.max_entries, data.settings.min_size) = (1 << 24, 1);
    data.contexts.push(ContextNode { parent: ContextId::ROOT, name: String::new(), module: false });
    data.stacks = stacks(vec![frame("main", "src/main.rs", 10)], &[&[0]]);
    data
}

pub(super) fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame { function: Some(function.into()), file: Some(file.into()), line: line.try_into().ok(), inlined: false }
}

/// A table of stacks, from 1 on, as numbers of frames, innermost first. Each frame has an address.
pub(super) fn stacks(frames: Vec<Frame>, of_frames: &[&[u32]]) -> Stacks {
    let address =
        |at: u32| CodeAddress { address: 0x1000 + u64::from(at), object: None, offset: 0, frames: at..at + 1 };
    Stacks::of((0..frames.len() as u32).map(address).collect(), frames, of_frames)
}

pub(super) fn contexts(data: &mut SnapshotData, parents: impl Iterator<Item = u32>, name: impl Fn(usize) -> String) {
    let node = |(at, parent)| ContextNode { parent: ContextId(parent), name: name(at), module: false };
    data.contexts.extend(parents.enumerate().map(node));
}

/// What else a device has.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) marks: Vec<Mark>,
    pub(super) told: Vec<Segment>,
    pub(super) segment_records: Vec<SegmentRecord>,
}

/// A device with this log, added to the recording.
pub(super) fn add(data: &mut SnapshotData, device: Device, records: Vec<Record>, beside: Beside) {
    let Beside { marks, told, segment_records } = beside;
    let (live, mut peak, stats) = replayed(&records);
    if let Some(at) = peak.seq.and_then(|seq| records.iter().position(|record| record.alloc_seq == Some(seq))) {
        peak.blocks = replayed(&records[..=at]).0;
    }
    let mut snapshot = DeviceSnapshot::default();
    (snapshot.device, snapshot.stats, snapshot.peak) = (device, stats, peak);
    snapshot.segments = segments::cover(&records, &live, &told, &segment_records);
    snapshot.segment_records = segment_records;
    snapshot.scopes = scopes(data, &records, &marks);
    (snapshot.marks, snapshot.records, snapshot.live) = (marks, records, live);
    data.devices.push(snapshot);
}

/// Live blocks after these records, the peak without its blocks, and counters.
fn replayed(records: &[Record]) -> (Vec<Block>, Peak, MemoryStats) {
    let (mut live, mut peak, mut sums): (HashMap<u64, Block>, Peak, [u64; 4]) = Default::default();
    let mut now = 0;
    for record in records {
        let old = match record.kind {
            RecordKind::Alloc => live.insert(record.address, record.block()),
            RecordKind::Free => live.remove(&record.address),
        };
        now -= old.map_or(0, |old| old.size);
        if record.kind == RecordKind::Alloc {
            now += record.size;
            (sums[0], sums[1]) = (sums[0] + record.size, sums[1] + 1);
            if now > peak.bytes {
                peak = Peak { bytes: now, time_ns: record.time_ns, seq: record.alloc_seq, ..Peak::default() };
            }
        }
        (sums[2], sums[3]) = (sums[2] + old.map_or(0, |old| old.size), sums[3] + u64::from(old.is_some()));
    }
    let mut live: Vec<Block> = live.into_values().collect();
    live.sort_unstable_by_key(|block| block.seq);
    let bytes = Stat { current: now, peak: peak.bytes, allocated: sums[0], freed: sums[2] };
    let blocks = Stat { current: live.len() as u64, peak: live.len() as u64, allocated: sums[1], freed: sums[3] };
    let stats = MemoryStats {
        allocated_bytes: bytes,
        active_bytes: bytes,
        reserved_bytes: bytes,
        allocations: blocks,
        ..MemoryStats::default()
    };
    (live, peak, stats)
}

/// Statistics of all scopes: each record counts for its scope and those around it.
fn scopes(data: &SnapshotData, records: &[Record], marks: &[Mark]) -> Vec<ScopeStats> {
    let mut all: Vec<(ScopeStats, u64)> = vec![Default::default(); data.contexts.len()];
    for mark in marks.iter().filter(|mark| mark.enter) {
        all[mark.context.0 as usize].0.calls += 1;
    }
    for record in records {
        let mut at = record.context;
        while at != ContextId::ROOT {
            let (stats, now) = &mut all[at.0 as usize];
            if record.kind == RecordKind::Alloc {
                *now += record.size;
                stats.allocations += 1;
                stats.allocated_bytes += record.size;
                stats.own_peak = stats.own_peak.max(*now);
            } else {
                *now = now.saturating_sub(record.size);
            }
            at = data.contexts[at.0 as usize].parent;
        }
    }
    let stats = |(at, (stats, _)): (usize, (ScopeStats, u64))| ScopeStats { context: ContextId(at as u32), ..stats };
    let is_there = |stats: &ScopeStats| stats.calls + stats.allocations > 0;
    all.into_iter().enumerate().skip(1).map(stats).filter(is_there).collect()
}
