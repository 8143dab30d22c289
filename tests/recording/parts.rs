//! Streams with a budget, against an oracle that keeps everything.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use memtrace::analysis::{Growth, Key};
use memtrace::snapshot::{Block, DeviceSnapshot, Replay};
use memtrace::{DeviceView, Session, Snapshot, open, scope};
use proptest::prelude::*;

use crate::child::{command_of, copy_of_this_program, if_child, in_child, test_name};
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

    /// What the files take together. A file may be deleted meanwhile.
    fn bytes(&self) -> u64 {
        self.files().iter().map(|file| file.metadata().map_or(0, |data| data.len())).sum()
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

/// A fixed program of which every state follows from the number of its records.
struct KnownProgram {
    random: u64,
    sizes: Vec<usize>,
}

enum KnownStep {
    Alloc(usize),
    Free(usize),
}

impl KnownProgram {
    fn new() -> Self {
        Self { random: 1, sizes: Vec::new() }
    }

    fn next(&mut self) -> KnownStep {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (self.random >> 33) as usize;
        if self.sizes.is_empty() || self.sizes.len() < 20 && number.is_multiple_of(2) {
            self.sizes.push(1 + number / 2 % 7);
            KnownStep::Alloc(self.sizes[self.sizes.len() - 1])
        } else {
            let at = number / 2 % self.sizes.len();
            self.sizes.swap_remove(at);
            KnownStep::Free(at)
        }
    }
}

/// Runs the program without end, and says on stdout how many of its steps were done, and how many are in the file.
fn runs_until_killed() {
    let path = std::env::var("TEST_OUT").unwrap();
    let session = memtrace::builder().min_size(MIB).stream(path).stream_budget(SMALL).start().unwrap();
    let (mut program, mut blocks, mut done) = (KnownProgram::new(), Vec::new(), 0u64);
    loop {
        for _ in 0..40 {
            match program.next() {
                KnownStep::Alloc(size) => blocks.push(Raw::new(size * MIB)),
                KnownStep::Free(at) => drop(blocks.swap_remove(at)),
            }
        }
        done += 40;
        println!("done {done}");
        session.flush();
        println!("kept {done}");
    }
}

/// The states of the known program, as far as they were asked for.
struct KnownStates {
    program: KnownProgram,
    records: u64,
    peak: usize,
    at_peak: Vec<usize>,
}

impl KnownStates {
    fn check(&mut self, device: &DeviceSnapshot) -> u64 {
        let stats = device.stats.allocations;
        let records = stats.allocated + stats.freed;
        assert!(records >= self.records, "an older state than before");
        while self.records < records {
            self.records += 1;
            self.program.next();
            let bytes = self.program.sizes.iter().sum();
            if bytes > self.peak {
                (self.peak, self.at_peak) = (bytes, self.program.sizes.clone());
            }
        }
        let sizes = |blocks: &[Block]| {
            let mut sizes: Vec<usize> = blocks.iter().map(|block| block.size as usize / MIB).collect();
            sizes.sort_unstable();
            sizes
        };
        let sorted = |sizes: &[usize]| {
            let mut sizes = sizes.to_vec();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(sizes(&device.live), sorted(&self.program.sizes), "after {records} records");
        assert_eq!(device.peak.bytes, (self.peak * MIB) as u64);
        assert_eq!(sizes(&device.peak.blocks), sorted(&self.at_peak));
        check_log(device);
        records
    }
}

#[test]
fn a_kill_at_any_moment_loses_at_most_the_last_commit() {
    if_child(runs_until_killed);
    // Files are read whole, which a recording of another test would see.
    let _alone = alone();
    let times = std::env::var("MEMTRACE_TEST_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(6u64);
    let programs = tempfile::tempdir().unwrap();
    let (copy, program) = (programs.path().join("copy"), programs.path().join("program"));
    copy_of_this_program(&copy);
    let (mut lost, mut most_lost, mut reads, mut rotated, mut random) = (0, 0, 0, 0, 88172645463325252u64);
    for _ in 0..times {
        let folder = Folder::new();
        let out = folder.stream().display().to_string();
        fs::hard_link(&copy, &program).unwrap();
        let mut child = command_of(&program, &test_name());
        let mut child = child.env("TEST_OUT", &out).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Without it there are no names of functions to look for, so that there are many reads.
        fs::remove_file(&program).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = std::thread::spawn(move || {
            let (mut done, mut kept) = (0u64, 0u64);
            for line in lines.map_while(Result::ok) {
                match line.split_once(' ') {
                    Some(("done", number)) => done = number.parse().unwrap(),
                    Some(("kept", number)) => kept = number.parse().unwrap(),
                    _ => {}
                }
            }
            (done, kept)
        });
        let read = || open(&out);
        while read().is_err() {
            std::thread::yield_now();
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let until = Instant::now() + Duration::from_micros(random % 400_000);
        let mut states = KnownStates { program: KnownProgram::new(), records: 0, peak: 0, at_peak: Vec::new() };
        while Instant::now() < until {
            // The device is in the file with its first record.
            if let Some(device) = read().unwrap().devices.first() {
                states.check(device);
                reads += 1;
            }
            assert!(folder.bytes() <= SMALL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (done, kept) = said.join().unwrap();
        let data = read().unwrap();
        let found = data.devices.first().map_or(0, |device| states.check(device));
        for part in folder.parts() {
            // One that had just been created may be empty.
            if memtrace::Snapshot::parse(&fs::read(&part).unwrap()).is_ok() {
                let _ = open(&part).unwrap();
            }
        }
        assert!(found >= kept && found <= done + 40, "{kept} were kept, {found} found, {done} done");
        rotated += u64::from(!folder.part(1).exists());
        lost += done.saturating_sub(found);
        most_lost = most_lost.max(done.saturating_sub(found));
    }
    println!(
        "{times} kills, {rotated} after a part was deleted, {reads} reads meanwhile; lost {lost} records in all, at most \
         {most_lost} by one kill"
    );
    assert!(rotated > 0, "in no run was a part deleted");
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "`setrlimit` is a C function")]
fn limit_files_to(bytes: u64) {
    // SAFETY: it reads the structure only.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: bytes, rlim_max: u64::MAX }) };
    assert_eq!(set, 0);
}

#[test]
fn a_disk_that_is_full_for_a_while_costs_a_gap() {
    let _alone = alone();
    let child = in_child(&[], || {
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        let builder = memtrace::builder().min_size(MIB).max_entries(64).stream(path);
        let session = builder.stream_budget(SMALL).start().unwrap();
        let mut oracle = Oracle::default();
        let mut kept = vec![oracle.new_block(5)];
        let mut count = |oracle: &mut Oracle, rounds: usize| {
            for _ in 0..rounds {
                oracle.come_and_go(10);
                kept.push(oracle.new_block(1));
                oracle.free(kept.swap_remove(0));
                session.flush();
            }
        };
        count(&mut oracle, 100);
        // Too little for a commit.
        for rounds in [vec![1; 60], vec![100]].concat() {
            let before = folder.files();
            limit_files_to(100);
            count(&mut oracle, rounds);
            assert!(folder.files().iter().all(|file| before.contains(file)), "nothing half-written stays");
            limit_files_to(u64::MAX);
            count(&mut oracle, 1);
        }
        count(&mut oracle, 20);
        std::thread::sleep(Duration::from_millis(1100));
        count(&mut oracle, 20);
        let read = folder.read();
        oracle.check(cpu(&read));
        check_log(cpu(&read));
        // Of the 2200 records all but those that fit into the ring buffer are missing.
        let missing: u64 = cpu(&read).gaps.iter().map(|gap| gap.records).sum();
        assert!(missing > 2000, "{:?}", cpu(&read).gaps);
        session.end().unwrap();
        oracle.check(cpu(&folder.read()));
    });
    assert!(child.said("cannot write"), "{child}");
}

#[test]
fn live_blocks_that_need_more_than_half_of_the_budget_stop_the_log_until_there_are_fewer() {
    let _alone = alone();
    let child = in_child(&[], || {
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        let session = memtrace::builder().min_size(1024).stream(path).stream_budget(SMALL).start().unwrap();
        let many: Vec<Raw> = (0..20_000).map(|_| Raw::new(1024)).collect();
        for _ in 0..20 {
            session.flush();
            assert!(folder.bytes() <= SMALL);
        }
        let stopped = folder.read();
        assert!(cpu(&stopped).live.len() < 20_000, "all {} are there", cpu(&stopped).live.len());
        check_log(cpu(&stopped));
        drop(many);
        let kept = Raw::new(4 * MIB);
        let live = |read: &Snapshot| cpu(read).live.iter().any(|block| block.size == 4 * MIB as u64);
        std::thread::sleep(Duration::from_millis(1100));
        session.flush();
        assert!(!live(&folder.read()), "the peak's blocks are still too many");
        assert!(folder.bytes() <= SMALL);
        drop((session, kept));
    });
    assert!(child.said("has no room"), "{child}");
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[inline(never)]
fn leaks(kept: &mut Vec<Vec<u8>>) {
    kept.push(vec![1; 1024]);
}

/// `MEMTRACE_TEST_RECORDS` records, by requests of a service that leaks 1 KiB in one of `MEMTRACE_TEST_EVERY` of them.
#[test]
fn a_long_run_stays_within_its_budget_and_its_growth_is_found() {
    let _alone = alone();
    let number = |name: &str, unset: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(unset);
    let (records, budget) = (number("MEMTRACE_TEST_RECORDS", 2_000_000), number("MEMTRACE_TEST_BUDGET", 8 << 20));
    let every = number("MEMTRACE_TEST_EVERY", 500).to_string();
    let variables = [("TEST_EVERY", every), ("TEST_RECORDS", records.to_string()), ("TEST_BUDGET", budget.to_string())];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let child = in_child(&variables, || {
        let (records, budget, every) = (number("TEST_RECORDS", 0), number("TEST_BUDGET", 0), number("TEST_EVERY", 1));
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        // The log's memory is in use long before the middle of the run.
        let builder = memtrace::builder().max_entries(1 << 18).stream(path);
        let session = builder.stream_budget(budget).start().unwrap();
        let mut kept = Vec::with_capacity((records / every) as usize + 1);
        let early = vec![1u8; 16 * MIB];
        let expected = 16 * MIB as u64;
        drop(std::hint::black_box(early));
        let (mut disk, mut memory, began) = (Vec::new(), Vec::new(), Instant::now());
        for request in 0..records / 2 {
            drop(std::hint::black_box(vec![0u8; 4096]));
            if request % every == 0 {
                leaks(&mut kept);
            }
            // An optimized build fills the ring buffer faster than ten times a second.
            if request % 50_000 == 0 {
                session.flush();
            }
            if request % (records / 40) == 0 {
                disk.push(folder.bytes());
                memory.push(resident());
            }
        }
        println!("{records} records in {:?}", began.elapsed());
        println!("disk {:?} KiB", disk.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>());
        println!("resident {:?} KiB", memory.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>());
        session.end().unwrap();
        assert!(folder.bytes() <= budget && disk.iter().all(|bytes| *bytes <= budget));
        // From the middle on, beside what the program leaks.
        let (middle, last) = (memory[memory.len() / 2], memory[memory.len() - 1]);
        let leaked: u64 = kept.iter().map(|block| block.len() as u64).sum();
        assert!(last < middle + leaked + (4 << 20), "{middle} bytes in the middle, {last} at the end");
        let read = folder.read();
        let device = cpu(&read);
        assert!(device.overwritten > 0);
        let largest = device.peak.blocks.iter().map(|block| block.size).max();
        assert_eq!(largest, Some(expected));
        assert!((expected..expected + (1 << 20)).contains(&device.peak.bytes), "{}", device.peak.bytes);
        let growth = Growth::of(&DeviceView::of(&read, device), Key::Line);
        println!("{} records in the log, {} before it; {:?}", device.records.len(), device.overwritten, growth.rows);
        println!("gaps {:?}", device.gaps);
        if device.gaps.is_empty() {
            let line = growth.rows.first().map(|row| row.label.clone()).unwrap_or_default();
            assert!(line.contains("leaks") && line.contains("parts.rs"), "{:?}", growth.rows);
        }
        println!("flat");
    });
    println!("{child}");
    assert!(child.said("flat"), "{child}");
}
