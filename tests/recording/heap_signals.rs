//! Threads under ten thousand signals a second each: they record, write snapshots and a stream, and read them back.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use memtrace::snapshot::{DeviceSnapshot, MemoryStats, Replay};
use memtrace::{Device, Session, SnapshotData, open, stats};

use crate::child::in_child;
use crate::support::{MIB, cpu, live};
use crate::ticks::Ticks;

const THREADS: usize = 4;
const ROUNDS: usize = 200;
/// Larger than what the harness, the snapshots and this test need beside: only blocks of the threads are recorded.
const LARGE: usize = 4 * MIB;
const MOST_RECORDS: usize = 1 << 15;
/// A snapshot is written after so many.
const PHASES: u64 = 5;

/// What the program counts itself.
#[derive(Debug, Default)]
struct Counted {
    allocations: AtomicU64,
    allocated: AtomicU64,
    freed: AtomicU64,
    /// A sum over all that was in the blocks.
    result: AtomicU64,
}

impl Counted {
    fn alloc(&self, words: u64) {
        self.allocations.fetch_add(1, Relaxed);
        self.allocated.fetch_add(8 * words, Relaxed);
    }

    fn free(&self, block: Vec<u64>) {
        self.freed.fetch_add(8 * block.capacity() as u64, Relaxed);
        self.result.fetch_add(block[0], Relaxed);
    }

    /// The program's result: the sum, with what is on the shelf.
    fn of_all(&self, shelf: Vec<Vec<u64>>) -> u64 {
        shelf.into_iter().for_each(|block| self.free(block));
        self.result.load(Relaxed)
    }

    fn check(&self, stats: &MemoryStats) {
        let numbers = [&self.allocations, &self.allocated, &self.freed].map(|number| number.load(Relaxed));
        assert_eq!(
            [stats.allocations.allocated, stats.allocated_bytes.allocated, stats.allocated_bytes.freed],
            numbers
        );
    }

    /// Blocks of its own and of other threads: allocated, made larger, and freed by whoever comes.
    fn churn(&self, thread: usize, shelf: &Mutex<Vec<Vec<u64>>>) {
        for round in 0..ROUNDS {
            let words = LARGE / 8 * (1 + (thread + round) % 3);
            let mut block = Vec::with_capacity(words);
            self.alloc(words as u64);
            block.push((thread * ROUNDS + round) as u64);
            if round % 4 == 0 {
                block.reserve_exact(2 * words);
                self.freed.fetch_add(8 * words as u64, Relaxed);
                self.alloc(block.capacity() as u64);
            }
            let mut shelf = shelf.lock().unwrap();
            shelf.push(block);
            let other = if shelf.len() > 8 { Some(shelf.remove(round % 8)) } else { None };
            drop(shelf);
            other.into_iter().for_each(|block| self.free(block));
        }
    }
}

/// Sums that hold at any moment of a recording.
fn check_sums(data: &SnapshotData) {
    let device = cpu(data);
    let total: u64 = device.live.iter().map(|block| block.size).sum();
    assert_eq!(total + device.not_recorded, device.stats.allocated_bytes.current);
    assert!(device.peak.bytes >= device.stats.allocated_bytes.current);
    let at_peak: u64 = device.peak.blocks.iter().map(|block| block.size).sum();
    assert_eq!(at_peak + device.peak.not_recorded, device.peak.bytes);
    check_log(device);
}

/// A log that is whole, or one behind its gaps, ends in the live blocks.
fn check_log(device: &DeviceSnapshot) {
    let mut replay = Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    assert_eq!(replay.blocks(), device.live);
    assert!(device.records.is_sorted_by_key(|record| record.time_ns));
}

/// Exactly what the program counted.
fn check_counted(data: &SnapshotData, counted: &Counted, shelf: &[Vec<u64>]) {
    check_sums(data);
    let mut expected: Vec<_> =
        shelf.iter().map(|block| (block.as_ptr().addr() as u64, 8 * block.capacity() as u64)).collect();
    let mut found = live(data);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    counted.check(&cpu(data).stats);
    assert_eq!(data.health.missed_frees, 0);
}

/// The threads. Meanwhile this one looks at the counters, for which waiting events have to be taken.
fn phase(signals: bool, counted: &Counted, shelf: &Mutex<Vec<Vec<u64>>>) {
    let (ready, busy) = (Barrier::new(THREADS + 1), AtomicU64::new(THREADS as u64));
    thread::scope(|threads| {
        for number in 0..THREADS {
            let (ready, busy) = (&ready, &busy);
            threads.spawn(move || {
                let _ticks = signals.then(Ticks::begin);
                ready.wait();
                counted.churn(number, shelf);
                busy.fetch_sub(1, Relaxed);
            });
        }
        ready.wait();
        while busy.load(Relaxed) > 0 {
            let bytes = stats(Device::Cpu).allocated_bytes;
            assert!(bytes.allocated - bytes.freed <= bytes.current && bytes.current <= bytes.peak);
            thread::sleep(Duration::from_micros(50));
        }
    });
}

/// A snapshot, written, read back and equal to what it was.
fn written(session: &Session, folder: &Path) -> SnapshotData {
    let (snapshot, path) = (session.snapshot(), folder.join("snapshot.memtrace"));
    snapshot.write(&path).unwrap();
    let back = open(&path).unwrap();
    assert!(*back == *snapshot, "the file has what the snapshot has");
    std::fs::remove_file(path).unwrap();
    (*back).clone()
}

/// `MEMTRACE_CASES` multiplies the number of signals.
#[test]
fn ten_thousand_signals_a_second_change_neither_the_program_nor_its_recording() {
    let cases: u64 = std::env::var("MEMTRACE_CASES").map_or(1, |cases| cases.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let said = in_child(&[("TEST_OUT", out)], || under_signals(Path::new(&std::env::var("TEST_OUT").unwrap()), cases));
    eprint!("{}", said.errors);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["stream.memtrace"], "nothing is torn or left over");
}

fn under_signals(folder: &Path, cases: u64) {
    let (alone, counted) = (Counted::default(), Counted::default());
    let (shelf_alone, shelf) = (Mutex::default(), Mutex::default());
    phase(false, &alone, &shelf_alone);
    let file = folder.join("stream.memtrace");
    let options = memtrace::builder().min_size(LARGE).max_entries(MOST_RECORDS);
    let session = options.stream(file.display().to_string()).start().unwrap();
    let _ticks = Ticks::begin();
    let (began, mut phases) = (Instant::now(), 0);
    while phases < PHASES || Ticks::handled() < 20_000 * cases {
        phase(true, &counted, &shelf);
        phases += 1;
        counted.check(&stats(Device::Cpu));
        if phases % PHASES == 0 {
            check_counted(&written(&session, folder), &counted, &shelf.lock().unwrap());
        }
    }
    session.end().unwrap();
    let (ticks, took) = (Ticks::handled(), began.elapsed().as_secs_f64());
    let read = open(&file).unwrap();
    check_counted(&read, &counted, &shelf.lock().unwrap());
    assert!(!read.health.cut_off);
    let rate = ticks as f64 / took;
    eprintln!("{ticks} signals in {took:.2} s, {rate:.0} a second; {} records", cpu(&read).records.len());
    let result = counted.of_all(shelf.into_inner().unwrap());
    assert_eq!(result, phases * alone.of_all(shelf_alone.into_inner().unwrap()), "the program's result");
}
