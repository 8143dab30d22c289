//! Streams with a budget, against an oracle that keeps everything.

#![cfg(target_os = "linux")]

mod full_disk;
mod kills;
mod limits;
mod older;
mod sampled;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use memtrace::snapshot::{Block, DeviceSnapshot, Replay};
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
}

impl Oracle {
    fn alloc(&mut self, block: &Raw, size: u64) {
        self.live.insert(block.address(), size);
        (self.bytes, self.allocs, self.allocated) = (self.bytes + size, self.allocs + 1, self.allocated + size);
        if self.bytes > self.peak {
            self.peak = self.bytes;
            self.at_peak.clone_from(&self.live);
        }
    }

    fn new_block(&mut self, mebibytes: usize) -> Raw {
        let block = Raw::new(mebibytes * MIB);
        self.alloc(&block, (mebibytes * MIB) as u64);
        block
    }

    fn come_and_go(&mut self, times: usize) {
        for _ in 0..times {
            let block = self.new_block(2);
            self.free(block);
        }
    }

    fn free(&mut self, block: Raw) {
        let size = self.live.remove(&block.address()).unwrap();
        (self.bytes, self.frees, self.freed) = (self.bytes - size, self.frees + 1, self.freed + size);
        drop(block);
    }

    /// A recording has the state, the peak and the counters of the whole run.
    fn check(&self, device: &DeviceSnapshot) {
        let places = |blocks: &[Block]| blocks.iter().map(|b| (b.address, b.size)).collect::<BTreeMap<_, _>>();
        // Blocks of earlier tests are counted only.
        let before = device.not_recorded;
        assert_eq!(device.peak.not_recorded, before);
        assert_eq!((device.peak.bytes - before, places(&device.peak.blocks)), (self.peak, self.at_peak.clone()));
        assert_eq!(places(&device.live), self.live);
        let (bytes, count) = (device.stats.allocated_bytes, device.stats.allocations);
        let found = (bytes.current - before, bytes.peak - before, bytes.allocated, bytes.freed);
        assert_eq!(found, (self.bytes, self.peak, self.allocated, self.freed));
        assert_eq!((count.allocated, count.freed), (self.allocs, self.frees));
    }
}

/// The log leads to the live blocks from those at its beginning, and is never above the peak.
fn check_log(device: &DeviceSnapshot) {
    let mut replay = Replay::at_log_start(device);
    for record in &device.records {
        replay.apply(record);
        assert!(replay.bytes() <= device.peak.bytes);
    }
    let seqs = |blocks: &[Block]| blocks.iter().map(|block| block.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&replay.blocks()), seqs(&device.live));
}

/// The stream and its parts.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn stream(&self) -> PathBuf {
        self.0.path().join("run.memtrace")
    }

    fn part(&self, number: u64) -> PathBuf {
        self.0.path().join(format!("run.{number}.memtrace"))
    }

    fn begin(&self, budget: u64) -> Session {
        let path = self.stream().display().to_string();
        memtrace::builder().min_size(MIB).stream(path).stream_budget(budget).start().unwrap()
    }

    fn read(&self) -> Snapshot {
        open(self.stream()).unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn parts(&self) -> Vec<PathBuf> {
        self.files().into_iter().filter(|path| *path != self.stream()).collect()
    }

    /// What the files take together. If a file is created or deleted meanwhile, their lengths are of different moments,
    /// and are read again.
    fn bytes(&self) -> u64 {
        let files = self.files();
        let bytes = files.iter().map(|file| file.metadata().map_or(0, |data| data.len())).sum();
        if self.files() == files { bytes } else { self.bytes() }
    }
}

/// The smallest budget in these tests: there is room for two beginnings of parts.
const SMALL: u64 = 96 << 10;

#[test]
fn the_peak_of_a_deleted_part_is_exact() {
    let _alone = alone();
    let folder = Folder::new();
    let session = folder.begin(4 * SMALL);
    let mut oracle = Oracle::default();
    let early: Vec<Raw> = scope("early", || (1..6).map(|size| oracle.new_block(size)).collect());
    early.into_iter().for_each(|block| oracle.free(block));
    while folder.part(1).exists() {
        oracle.come_and_go(100);
        session.flush();
        assert!(folder.bytes() <= 4 * SMALL, "{}", folder.bytes());
    }
    let kept = oracle.new_block(3);
    session.flush();
    let snapshot = session.snapshot();
    let growing = folder.read();
    session.end().unwrap();
    let at_end = folder.read();
    for read in [&growing, &at_end] {
        oracle.check(cpu(read));
        check_log(cpu(read));
        assert!(cpu(read).overwritten > 0 && cpu(read).gaps.is_empty());
        assert_eq!(cpu(read).scopes, cpu(&snapshot).scopes);
        assert_eq!(cpu(read).peak.time_ns, cpu(&snapshot).peak.time_ns);
        assert!(cpu(read).peak.time_ns < cpu(read).records[0].time_ns, "it lies before the log");
    }
    assert!(growing.health.cut_off && !at_end.health.cut_off);
    assert!(memtrace_core::has_ended(&folder.stream()), "the file that names the stream says so, too");
    let report = at_end.report().to_string();
    assert!(report.contains("in early"), "{report}");
    // Each part says what it can alone, and stands for all when it is named.
    for part in folder.parts() {
        let alone = Snapshot::parse(&fs::read(&part).unwrap()).unwrap();
        check_log(cpu(&alone));
        let (peak, whole) = (&cpu(&alone).peak, &cpu(&at_end).peak);
        assert_eq!((peak.bytes, peak.time_ns, peak.seq), (whole.bytes, whole.time_ns, whole.seq));
        assert_eq!(*open(&part).unwrap(), *at_end);
    }
    assert!(folder.bytes() <= 4 * SMALL && folder.parts().len() > 2);
    drop(kept);
}

#[test]
fn a_stream_with_room_is_whole() {
    let _alone = alone();
    let folder = Folder::new();
    let session = folder.begin(64 << 20);
    let mut oracle = Oracle::default();
    oracle.come_and_go(50);
    let kept = oracle.new_block(2);
    session.end().unwrap();
    let read = folder.read();
    oracle.check(cpu(&read));
    assert_eq!((cpu(&read).overwritten, cpu(&read).records.len()), (0, 101));
    drop(kept);
}

#[test]
fn what_is_there_is_neither_overwritten_nor_deleted() {
    let _alone = alone();
    let folder = Folder::new();
    // Somebody else's file has the name of a later part, and another one that of no part.
    fs::write(folder.part(3), "mine").unwrap();
    let note = folder.0.path().join("run.note.memtrace");
    fs::write(&note, "mine").unwrap();
    let session = folder.begin(SMALL);
    let mut oracle = Oracle::default();
    while !folder.part(12).exists() {
        oracle.come_and_go(100);
        session.flush();
    }
    // This one is replaced while the stream has it.
    let (older, moved) = (folder.part(11), folder.0.path().join("moved"));
    fs::rename(&older, &moved).unwrap();
    fs::write(&older, "also mine").unwrap();
    while folder.part(12).exists() {
        oracle.come_and_go(100);
        session.flush();
    }
    oracle.check(cpu(&folder.read()));
    session.end().unwrap();
    let before = fs::read(folder.stream()).unwrap();
    let path = folder.stream().display().to_string();
    for again in [memtrace::builder().stream(&path), memtrace::builder().stream(&path).stream_budget(SMALL)] {
        assert!(again.start().unwrap_err().is_already_exists());
    }
    assert_eq!(fs::read(folder.stream()).unwrap(), before);
    for (file, text) in [(folder.part(3), "mine"), (note, "mine"), (older, "also mine")] {
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "{}", file.display());
    }
}

#[test]
fn a_budget_without_room_for_two_beginnings_is_refused() {
    let _alone = alone();
    let folder = Folder::new();
    let path = folder.stream().display().to_string();
    let error = memtrace::builder().stream(path).stream_budget("1 KiB").start().unwrap_err().to_string();
    assert!(error.contains("budget of 1024 bytes has no room"), "{error}");
    assert_eq!(folder.files().len(), 0, "nothing stays");
}

#[test]
fn the_oldest_part_that_is_missing_or_damaged_ends_the_log_and_one_in_between_is_a_gap() {
    let _alone = alone();
    let folder = Folder::new();
    let session = folder.begin(4 * SMALL);
    let mut oracle = Oracle::default();
    let kept: Vec<Raw> = (1..40)
        .map(|_| {
            oracle.come_and_go(400);
            session.flush();
            oracle.new_block(1)
        })
        .collect();
    session.end().unwrap();
    let numbers: Vec<u64> = (1..1000).filter(|number| folder.part(*number).exists()).collect();
    assert!(numbers.len() >= 4, "{numbers:?}");
    let whole = folder.read();
    assert!(cpu(&whole).gaps.is_empty());
    let between = folder.part(numbers[numbers.len() - 2]);
    let bytes = fs::read(&between).unwrap();
    let records = |data: &Snapshot| cpu(data).records.len() as u64;
    let lost = records(&Snapshot::parse(&bytes).unwrap());
    // Cut: what is left of it, and a gap.
    fs::write(&between, &bytes[..bytes.len() - bytes.len() / 8]).unwrap();
    let cut = folder.read();
    oracle.check(cpu(&cut));
    check_log(cpu(&cut));
    assert!(cpu(&cut).gaps.len() == 1 && cut.health.unread_bytes > 0, "{:?}", cpu(&cut).gaps);
    // Gone: a gap of all its records.
    fs::remove_file(&between).unwrap();
    let gone = folder.read();
    oracle.check(cpu(&gone));
    check_log(cpu(&gone));
    assert_eq!(cpu(&gone).gaps.iter().map(|gap| gap.records).collect::<Vec<_>>(), [lost]);
    assert_eq!(cpu(&gone).overwritten, cpu(&whole).overwritten);
    // The name alone names nothing that can be read.
    numbers.iter().for_each(|number| drop(fs::remove_file(folder.part(*number))));
    let error = open(folder.stream()).unwrap_err().to_string();
    assert!(error.contains("no part with a commit"), "{error}");
    drop(kept);
}

/// A step of a random program.
#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(prop::sample::Index),
    Many(usize),
    Scope(Vec<Step>),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        6 => (1..8usize).prop_map(Step::Alloc),
        6 => any::<prop::sample::Index>().prop_map(Step::Free),
        3 => (1..200usize).prop_map(Step::Many),
        3 => Just(Step::Flush),
    ];
    let step = prop_oneof![8 => leaf.clone(), 1 => prop::collection::vec(leaf, 0..8).prop_map(Step::Scope)];
    prop::collection::vec(step, 0..60)
}

fn run(session: &Session, steps: &[Step], oracle: &mut Oracle, kept: &mut Vec<Raw>) {
    for step in steps {
        match step {
            Step::Alloc(mebibytes) => kept.push(oracle.new_block(*mebibytes)),
            Step::Free(_) if kept.is_empty() => {}
            Step::Free(index) => oracle.free(kept.swap_remove(index.index(kept.len()))),
            Step::Many(times) => oracle.come_and_go(*times),
            Step::Scope(steps) => scope(format!("scope {}", steps.len()), || run(session, steps, oracle, kept)),
            Step::Flush => session.flush(),
        }
    }
}

/// Whatever was deleted: state, peak, counters and scopes are those of the whole run, and the files fit into the budget.
fn check_random_program(steps: &[Step], rounds: usize, budget: u64, max_entries: usize) {
    let _alone = alone();
    let folder = Folder::new();
    let (mut oracle, mut kept) = (Oracle::default(), Vec::new());
    let builder = memtrace::builder().min_size(MIB).max_entries(max_entries);
    let session = builder.stream(folder.stream().display().to_string()).stream_budget(budget).start().unwrap();
    // A device is in the file with its first record.
    kept.push(oracle.new_block(1));
    for _ in 0..rounds {
        run(&session, steps, &mut oracle, &mut kept);
        session.flush();
        assert!(folder.bytes() <= budget, "{} of {budget}", folder.bytes());
    }
    let snapshot = session.snapshot();
    let growing = folder.read();
    session.end().unwrap();
    for read in [growing, folder.read()] {
        let (read, expected) = (cpu(&read), cpu(&snapshot));
        oracle.check(read);
        check_log(read);
        assert_eq!((read.peak.time_ns, read.peak.seq), (expected.peak.time_ns, expected.peak.seq));
        assert_eq!(read.scopes, expected.scopes);
    }
    assert!(folder.bytes() <= budget);
}

proptest! {
    #![proptest_config(crate::random::programs(12))]

    #[test]
    fn the_state_is_that_of_the_whole_run(
        steps in steps(),
        rounds in 1..40usize,
        budget in SMALL..4 * SMALL,
        max_entries in prop_oneof![Just(16usize), Just(1 << 16)],
    ) {
        check_random_program(&steps, rounds, budget, max_entries);
    }
}
