//! Unsynchronized threads: their order is unknown, but the accounts are exact.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::child;
use crate::support::{MIB, Raw, Reader, alone, bytes_before_recording, cpu, live, record_large};
use memtrace::{Device, stats};

const THREADS: usize = 4;
const ROUNDS: usize = 500;

/// Allocates, resizes and frees its own blocks and those of other threads.
fn churn(thread: usize, shelf: &Mutex<Vec<Raw>>) {
    for round in 0..ROUNDS {
        let mut block = Raw::new(MIB * (1 + (thread + round) % 3));
        if round % 4 == 0 {
            block.resize(MIB * (1 + round % 5));
        }
        let mut shelf = shelf.lock().unwrap();
        shelf.push(block);
        let other = if shelf.len() > 8 { Some(shelf.remove(round % 8)) } else { None };
        drop(shelf);
        drop(other);
    }
}

#[test]
fn a_block_is_in_one_account_while_sessions_come_and_go() {
    come_and_go(None);
    // Events that wait for the ledger of a recording that ends.
    (0..5).for_each(|_| come_and_go(Some(Reader::begin)));
}

fn come_and_go(reader: Option<fn() -> Reader>) {
    let _alone = alone();
    let _reader = reader.map(|begin| begin());
    let empty = bytes_before_recording();
    let (shelf, running) = (Mutex::new(Vec::new()), AtomicUsize::new(THREADS));
    let mut sessions = 0;
    thread::scope(|threads| {
        for number in 0..THREADS {
            let (shelf, running) = (&shelf, &running);
            threads.spawn(move || {
                churn(number, shelf);
                running.fetch_sub(1, Relaxed);
            });
        }
        while running.load(Relaxed) > 0 {
            drop(record_large());
            sessions += 1;
            thread::yield_now();
        }
    });
    assert!(sessions > 0);
    let mut left = shelf.into_inner().unwrap();
    assert_eq!(bytes_before_recording(), empty + left.iter().map(Raw::size).sum::<u64>());
    left.clear();
    assert_eq!(bytes_before_recording(), empty);
}

/// Stops the other threads wherever they are, again and again, until this is dropped: also between any two steps of the recorder.
struct Stopper(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Stopper {
    #[expect(unsafe_code, reason = "signals are C's")]
    fn begin() -> Self {
        extern "C" fn pause(_: libc::c_int) {
            let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000 };
            // SAFETY: reads one `timespec`; may be called in signal handlers.
            unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        }
        // SAFETY: the handler does what handlers may.
        unsafe { libc::signal(libc::SIGUSR2, pause as extern "C" fn(_) as usize) };
        let goes_on = Arc::new(AtomicBool::new(true));
        let until = Arc::clone(&goes_on);
        let stop = move || {
            // SAFETY: returns a number.
            let own = unsafe { libc::gettid() };
            while until.load(Relaxed) {
                let tasks = std::fs::read_dir("/proc/self/task").unwrap();
                let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<i32>().ok());
                for id in ids.filter(|id| *id != own) {
                    // SAFETY: the handler is there; a thread that has ended is an error.
                    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGUSR2) };
                }
                thread::sleep(Duration::from_micros(700));
            }
        };
        Self(goes_on, Some(thread::spawn(stop)))
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn concurrent_threads_are_recorded_to_the_byte() {
    concurrent_threads(None);
    (0..3).for_each(|_| concurrent_threads(Some(Stopper::begin)));
}

fn concurrent_threads(stopper: Option<fn() -> Stopper>) {
    let _alone = alone();
    let _stopper = stopper.map(|begin| begin());
    let session = record_large();
    let (base, shelf) = (stats(Device::Cpu).allocated_bytes.current, Mutex::new(Vec::new()));
    thread::scope(|threads| {
        for number in 0..THREADS {
            let shelf = &shelf;
            threads.spawn(move || churn(number, shelf));
        }
    });
    let snapshot = session.snapshot();
    let (mut expected, mut found) = (shelf.into_inner().unwrap(), live(&snapshot));
    expected.sort_unstable_by_key(Raw::address);
    found.sort_unstable();
    assert_eq!(found, expected.iter().map(Raw::key).collect::<Vec<_>>());
    let device = cpu(&snapshot);
    assert_eq!(device.not_recorded, base);
    let resized = ROUNDS.div_ceil(4);
    assert_eq!(device.stats.allocations.allocated as usize, THREADS * (ROUNDS + resized));
    assert_eq!((device.overwritten, snapshot.health.missed_frees), (0, 0));
    assert!(device.records.is_sorted_by_key(|record| record.time_ns));
}

#[test]
fn the_peak_stays_while_other_threads_free_older_blocks() {
    let _alone = alone();
    (0..crate::random::programs(1).cases).for_each(|_| free_older_blocks(500));
}

fn free_older_blocks(each: usize) {
    let old: [Vec<Raw>; THREADS] = std::array::from_fn(|_| (0..each).map(|_| Raw::new(MIB)).collect());
    let _session = record_large();
    let start = stats(Device::Cpu).allocated_bytes.current;
    let freeing = old.map(|blocks| thread::spawn(|| drop(blocks)));
    while !freeing.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(stats(Device::Cpu).allocated_bytes.peak, start);
        thread::yield_now();
    }
    freeing.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(stats(Device::Cpu).allocated_bytes.current, start - (THREADS * each * MIB) as u64);
}

/// Small blocks are counted without the ledger's lock. A block that makes a peak may wait for that lock, and small blocks may be freed
/// meanwhile.
#[test]
fn bytes_below_the_threshold_are_those_of_the_moment_of_the_peak() {
    const SMALL: usize = MIB / 2;
    let _alone = alone();
    for round in 1..=50 {
        let session = record_large();
        let (kept, reader) = (Raw::new(3 * MIB), Reader::begin());
        // Until one of them meets the reader; then events wait.
        thread::scope(|threads| _ = threads.spawn(|| (0..100).for_each(|_| drop(Raw::new(MIB)))));
        (0..100).for_each(|_| drop(Raw::new(MIB)));
        drop(reader);
        let before = stats(Device::Cpu).below_threshold;
        let small: Vec<Raw> = (0..round).map(|_| Raw::new(SMALL)).collect();
        let peak = Raw::new(2 * MIB);
        drop((small, peak));
        let snapshot = session.snapshot();
        let found = cpu(&snapshot).peak.below_threshold;
        // What the harness and the recorder's own vectors hold may differ a little.
        assert!(
            found.abs_diff(before + (round * SMALL) as u64) < SMALL as u64 / 2,
            "{round}: {found}, {before} before"
        );
        drop(kept);
    }
}

#[test]
fn ten_thousand_threads_are_recorded_in_the_memory_of_a_hundred() {
    // In a process of its own: other tests' files would name all these threads.
    child::in_child(&[], ten_thousand_threads);
}

fn ten_thousand_threads() {
    const AT_ONCE: usize = 100;
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let hundred = |_| {
        thread::scope(|threads| {
            for _ in 0..AT_ONCE {
                threads.spawn(|| (0..10).for_each(|_| drop(Raw::new(MIB))));
            }
        });
    };
    let taken_by_nine_thousand = || {
        (0..10).for_each(hundred);
        let before = resident();
        (0..90).for_each(hundred);
        resident().saturating_sub(before)
    };
    // What the threads take by themselves: much, in an emulator.
    let alone = taken_by_nine_thousand();
    let session = record_large();
    let more = taken_by_nine_thousand().saturating_sub(alone);
    let device = cpu(&session.snapshot()).clone();
    assert_eq!((device.stats.allocations.allocated, device.live.len()), (100_000, 0));
    // 180,000 records of 32 bytes.
    assert!(more < 16 * MIB, "{more} bytes");
}
