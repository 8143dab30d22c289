//! Streams with a budget, against an oracle that keeps everything.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use memtrace::snapshot::{Block, DeviceSnapshot};
use memtrace::{Session, Snapshot, open, scope};
use proptest::prelude::*;

use crate::support::{MIB, Raw, alone, cpu};

/// Every alloc and free of a program, kept by the test itself.
#[derive(Default)]
struct Oracle {
    live: BTreeMap<u64, u64>,
    bytes: u64,
    peak: u64,
    at_peak: BTreeMap<u64, u64>,
    allocs: u64,
    allocated: u64,
    frees: u64,
    freed: u64,
    /// Of each scope: calls and allocated bytes.
    scopes: BTreeMap<String, (u64, u64)>,
}

impl Oracle {
    fn alloc(&mut self, block: &Raw, size: u64) {
        self.live.insert(block.address() as u64, size);
        (self.bytes, self.allocs, self.allocated) = (self.bytes + size, self.allocs + 1, self.allocated + size);
        if self.bytes > self.peak {
            self.peak = self.bytes;
            self.at_peak.clone_from(&self.live);
        }
    }

    fn free(&mut self, block: Raw) {
        let size = self.live.remove(&(block.address() as u64)).unwrap();
        (self.bytes, self.frees, self.freed) = (self.bytes - size, self.frees + 1, self.freed + size);
        drop(block);
    }

    /// A recording has the state, the peak and the counters of the whole run.
    fn check(&self, device: &DeviceSnapshot) {
        let places = |blocks: &[Block]| blocks.iter().map(|b| (b.address, b.size)).collect::<BTreeMap<_, _>>();
        assert_eq!((device.peak.bytes, places(&device.peak.blocks)), (self.peak, self.at_peak.clone()));
        assert_eq!(places(&device.live), self.live);
        let (bytes, count) = (device.stats.allocated_bytes, device.stats.allocations);
        assert_eq!((bytes.current, bytes.peak, bytes.allocated, bytes.freed), (
            self.bytes,
            self.peak,
            self.allocated,
            self.freed
        ));
        assert_eq!((count.allocated, count.freed), (self.allocs, self.frees));
    }
}

/// The log leads to the live blocks from those at its beginning, and is never above the peak.
fn check_log(device: &DeviceSnapshot) {
    let mut replay = memtrace::snapshot::Replay::at_log_start(device);
    for record in &device.records {
        replay.apply(record);
        assert!(replay.bytes() <= device.peak.bytes);
    }
    assert_eq!(replay.blocks().iter().map(|b| b.seq).collect::<Vec<_>>(), device.live.iter().map(|b| b.seq).collect::<Vec<_>>());
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn bytes_of(folder: &Path) -> u64 {
    files_of(folder).iter().map(|file| file.metadata().unwrap().len()).sum()
}

fn stream(folder: &Path, budget: u64) -> Session {
    let path = folder.join("run.memtrace").display().to_string();
    memtrace::builder().min_size(MIB).stream(path).stream_budget(budget).start().unwrap()
}

/// The smallest budget in these tests: there is room for two beginnings of parts.
const SMALL: u64 = 96 << 10;

#[test]
fn the_peak_of_a_deleted_part_is_exact() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let session = stream(dir.path(), SMALL);
    let mut oracle = Oracle::default();
    let keep = |oracle: &mut Oracle, mebibytes: usize| {
        let block = Raw::new(mebibytes * MIB);
        oracle.alloc(&block, (mebibytes * MIB) as u64);
        block
    };
    let blocks: Vec<Raw> = scope("early", || (1..6).map(|size| keep(&mut oracle, size)).collect());
    blocks.into_iter().for_each(|block| oracle.free(block));
    let parts = |folder: &Path| files_of(folder).into_iter().filter(|path| path.file_stem().unwrap() != "run").collect::<Vec<_>>();
    while parts(dir.path()).iter().any(|part| part.ends_with("run.1.memtrace")) {
        for _ in 0..100 {
            let block = keep(&mut oracle, 2);
            oracle.free(block);
        }
        session.flush();
        assert!(bytes_of(dir.path()) <= SMALL, "{}", bytes_of(dir.path()));
    }
    let kept = keep(&mut oracle, 3);
    session.flush();
    let read = open(dir.path().join("run.memtrace")).unwrap();
    println!("{:?} {} records {} parts", cpu(&read).peak, cpu(&read).records.len(), parts(dir.path()).len());
    oracle.check(cpu(&read));
    check_log(cpu(&read));
    assert!(cpu(&read).overwritten > 0 && cpu(&read).gaps.is_empty());
    session.end().unwrap();
    let read = open(dir.path().join("run.memtrace")).unwrap();
    oracle.check(cpu(&read));
    for part in parts(dir.path()) {
        let bytes = fs::read(&part).unwrap();
        let alone = Snapshot::parse(&bytes).unwrap();
        check_log(cpu(&alone));
        assert_eq!(cpu(&alone).peak.bytes, oracle.peak);
        assert_eq!(open(&part).unwrap().process, read.process);
        oracle.check(cpu(&open(part).unwrap()));
    }
    assert!(bytes_of(dir.path()) <= SMALL);
    drop(kept);
}
