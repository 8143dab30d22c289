//! The heap's ledger has every block with its exact size until its free.

use std::alloc::Layout;
use std::num::NonZeroU64;

use crate::support::{MIB, Raw, Reader, alone, bytes_before_recording, cpu, live, record_large, records};
use memtrace::snapshot::{RecordKind, StackId};

/// Kind, address and size of each record in the log.
fn log(snapshot: &memtrace::SnapshotData) -> Vec<(RecordKind, u64, u64)> {
    records(snapshot).iter().map(|record| (record.kind, record.address, record.size)).collect()
}

/// Numbers of the blocks that are allocated or freed.
fn seqs(snapshot: &memtrace::SnapshotData, kind: RecordKind) -> Vec<u64> {
    records(snapshot).iter().filter(|r| r.kind == kind).filter_map(|r| r.alloc_seq).map(NonZeroU64::get).collect()
}

fn entry(kind: RecordKind, (address, size): (u64, u64)) -> (RecordKind, u64, u64) {
    (kind, address, size)
}

#[test]
fn a_block_is_live_with_its_exact_size_until_its_free() {
    let _alone = alone();
    let session = record_large();
    let mut blocks: Vec<Raw> = [0, 1, 4095, 7 * MIB].map(|more| Raw::new(MIB + more)).into();
    let keys = |blocks: &[Raw]| blocks.iter().map(Raw::key).collect::<Vec<_>>();
    assert_eq!(live(&session.snapshot()), keys(&blocks));
    drop(blocks.remove(1));
    assert_eq!(live(&session.snapshot()), keys(&blocks));
    blocks.clear();
    let last = session.snapshot();
    assert_eq!(live(&last), []);
    assert_eq!(seqs(&last, RecordKind::Alloc), [1, 2, 3, 4]);
    assert_eq!(seqs(&last, RecordKind::Free), [2, 1, 3, 4]);
}

#[test]
fn without_a_threshold_the_smallest_block_is_recorded() {
    let _alone = alone();
    let session = memtrace::builder().min_size(0).start().unwrap();
    let blocks = [1, 7, 64, 1023, 1024, 100_000].map(Raw::new);
    let snapshot = session.snapshot();
    let seqs = blocks.each_ref().map(|raw| {
        let mut found = cpu(&snapshot).live.iter().filter(|block| (block.address, block.size) == raw.key());
        found.next().expect("the block is live").seq
    });
    drop(blocks);
    assert!(cpu(&session.snapshot()).live.iter().all(|block| !seqs.contains(&block.seq)));
}

#[test]
fn a_block_below_the_threshold_is_not_recorded_and_one_at_it_is() {
    let _alone = alone();
    let session = record_large();
    let (below, at) = (Raw::new(MIB - 1), Raw::new(MIB));
    assert_eq!(live(&session.snapshot()), [at.key()]);
    drop((below, at));
    assert_eq!(records(&session.snapshot()).len(), 2);
}

#[test]
fn a_reallocation_is_a_free_and_an_alloc() {
    let _alone = alone();
    let session = record_large();
    let mut block = Raw::new(2 * MIB);
    let mut expected = vec![entry(RecordKind::Alloc, block.key())];
    // Grows, shrinks in place, grows by a byte, moves far away.
    for size in [5 * MIB + 1, 3 * MIB, 3 * MIB + 1, 90 * MIB] {
        expected.push(entry(RecordKind::Free, block.key()));
        block.resize(size);
        expected.push(entry(RecordKind::Alloc, block.key()));
    }
    let snapshot = session.snapshot();
    assert_eq!(log(&snapshot), expected);
    assert_eq!(live(&snapshot), [block.key()]);
    let bytes = cpu(&snapshot).stats.allocated_bytes;
    assert_eq!(bytes.allocated - bytes.freed, block.size());
}

#[test]
fn a_failed_reallocation_leaves_no_trace() {
    failed_reallocation(None);
    // Frees that wait for the ledger are undone, too.
    (0..20).for_each(|_| failed_reallocation(Some(Reader::begin)));
}

fn failed_reallocation(reader: Option<fn() -> Reader>) {
    let _alone = alone();
    let too_much = usize::MAX / 4;
    let mut before = vec![0u8; 7 * MIB];
    let session = record_large();
    let _reader = reader.map(|begin| begin());
    let mut block = std::hint::black_box(vec![0u8; 3 * MIB]);
    assert!(before.try_reserve(too_much).is_err() && block.try_reserve(too_much).is_err());
    let key = (block.as_ptr().addr() as u64, block.len() as u64);
    let snapshot = session.snapshot();
    assert_eq!(log(&snapshot), [entry(RecordKind::Alloc, key)]);
    assert_eq!(live(&snapshot), [key]);
    let peak = &cpu(&snapshot).peak;
    assert_eq!(peak.bytes, peak.not_recorded + key.1);
    let freed = cpu(&snapshot).stats.allocated_bytes.freed;
    drop(before);
    let after = session.snapshot();
    assert_eq!(cpu(&after).stats.allocated_bytes.freed - freed, 7 * MIB as u64, "it is still there to be freed");
    drop(block);
}

#[test]
fn a_reallocation_across_the_threshold_enters_and_leaves_the_account() {
    let _alone = alone();
    let session = record_large();
    let mut block = Raw::new(1000);
    block.resize(MIB);
    assert_eq!(live(&session.snapshot()), [block.key()]);
    block.resize(1000);
    let snapshot = session.snapshot();
    assert_eq!(live(&snapshot), []);
    assert_eq!(records(&snapshot).iter().map(|r| r.kind).collect::<Vec<_>>(), [RecordKind::Alloc, RecordKind::Free]);
}

#[test]
fn zeroed_and_aligned_blocks_are_recorded_with_their_requested_size() {
    let _alone = alone();
    let session = record_large();
    let layouts = [(MIB + 3, 64), (MIB, 4096), (MIB + 1, 2 * MIB), (3 * MIB, 1)];
    let layouts = layouts.map(|(size, align)| Layout::from_size_align(size, align).unwrap());
    let mut blocks: Vec<Raw> = layouts.map(Raw::with).into();
    blocks.push(Raw::zeroed(4 * MIB + 5));
    let vec = std::hint::black_box(vec![0u8; 2 * MIB + 9]);
    let mut expected: Vec<_> = blocks.iter().map(Raw::key).collect();
    expected.push((vec.as_ptr().addr() as u64, 2 * MIB as u64 + 9));
    assert_eq!(live(&session.snapshot()), expected);
    drop((blocks, vec));
    assert_eq!(live(&session.snapshot()), []);
}

#[test]
fn free_on_another_thread_finds_its_alloc() {
    let _alone = alone();
    let session = record_large();
    let (first, second) = (Raw::new(MIB), Raw::new(2 * MIB));
    let keys = [first.key(), second.key()];
    std::thread::spawn(move || drop(first)).join().unwrap();
    let mut second = std::thread::spawn(move || second).join().unwrap();
    second = std::thread::spawn(move || {
        second.resize(3 * MIB);
        second
    })
    .join()
    .unwrap();
    let snapshot = session.snapshot();
    assert_eq!(live(&snapshot), [second.key()]);
    assert_eq!([log(&snapshot)[2], log(&snapshot)[3]], keys.map(|key| entry(RecordKind::Free, key)));
    assert_eq!(seqs(&snapshot, RecordKind::Free), [1, 2]);
    let threads: Vec<u32> = records(&snapshot).iter().map(|r| r.thread.number()).collect();
    // Two allocations here, a free on one thread, a free and an allocation on another.
    assert!(threads[0] == threads[1] && threads[3] == threads[4]);
    assert!(threads[2] != threads[0] && threads[3] != threads[0] && threads[2] != threads[3]);
}

#[test]
fn blocks_from_before_the_recording_leave_one_by_one() {
    let _alone = alone();
    let empty = bytes_before_recording();
    let old = [MIB, 2 * MIB, 5 * MIB + 1].map(Raw::new);
    let keys = old.each_ref().map(Raw::key);
    let session = record_large();
    let mut left: u64 = old.iter().map(Raw::size).sum();
    assert_eq!(cpu(&session.snapshot()).not_recorded, empty + left);
    for block in old {
        left -= block.size();
        drop(block);
        let snapshot = session.snapshot();
        assert_eq!(cpu(&snapshot).not_recorded, empty + left);
        assert_eq!(memtrace::stats(memtrace::Device::Cpu).allocated_bytes.current, empty + left);
    }
    let snapshot = session.snapshot();
    assert_eq!(log(&snapshot), keys.map(|key| entry(RecordKind::Free, key)));
    assert!(records(&snapshot).iter().all(|r| r.alloc_seq.is_none() && r.alloc_stack == StackId::NONE));
    let stats = cpu(&snapshot).stats;
    assert_eq!((stats.allocations.allocated, stats.allocations.current), (0, 0));
    assert_eq!(stats.allocated_bytes.freed, 8 * MIB as u64 + 1);
}

#[test]
fn the_peak_can_be_the_very_start() {
    let _alone = alone();
    let mut old = vec![Raw::new(4 * MIB), Raw::new(MIB)];
    let session = record_large();
    let start = cpu(&session.snapshot()).not_recorded;
    old.remove(0);
    // As many bytes as at the start, but later: the first maximum counts.
    let new = Raw::new(4 * MIB);
    let snapshot = session.snapshot();
    let peak = &cpu(&snapshot).peak;
    assert_eq!((peak.bytes, peak.not_recorded, peak.seq, peak.time_ns), (start, start, None, 0));
    assert_eq!(peak.blocks, []);
    let more = Raw::new(MIB);
    let snapshot = session.snapshot();
    let peak = &cpu(&snapshot).peak;
    let (not_recorded, mib) = (start - 4 * MIB as u64, MIB as u64);
    assert_eq!((peak.bytes, peak.not_recorded, peak.seq), (start + mib, not_recorded, NonZeroU64::new(2)));
    assert_eq!(peak.blocks.iter().map(|b| b.address).collect::<Vec<_>>(), [new.address(), more.address()]);
}

#[test]
fn remaining_blocks_are_from_before_the_next_recording() {
    let _alone = alone();
    let empty = bytes_before_recording();
    let first = record_large();
    let (a, b, c) = (Raw::new(3 * MIB), Raw::new(5 * MIB), Raw::new(7 * MIB));
    drop(c);
    assert_eq!(live(&first.snapshot()), [a.key(), b.key()]);
    drop(first);
    assert_eq!(bytes_before_recording(), empty + a.size() + b.size());
    drop(a);
    let second = record_large();
    assert_eq!(live(&second.snapshot()), []);
    assert_eq!(cpu(&second.snapshot()).not_recorded, empty + b.size());
    drop(b);
    assert_eq!(cpu(&second.snapshot()).not_recorded, empty);
    drop(second);
    assert_eq!(bytes_before_recording(), empty);
}
