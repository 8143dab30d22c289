//! Memory that is not recorded: blocks below the threshold, and memtrace's own memory.
//!
//! In the child only one thread runs, while the harness's thread waits, so that every byte is accounted for.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};

use memtrace::shell::own_bytes;
use memtrace::{Device, Session, Snapshot};

use crate::child::in_child;
use crate::support::{MIB, Raw, cpu, records};

#[test]
fn small_blocks_are_counted_to_the_byte() {
    in_child(&[], || {
        let old = Raw::new(500);
        let _session = memtrace::builder().min_size(1024).start().unwrap();
        let below = || memtrace::stats(Device::Cpu).below_threshold;
        let before = below();
        let blocks = [1, 100, 1023, 1024, 5000].map(Raw::new);
        assert_eq!(below(), before + 1124);
        let mut resized = Raw::new(10);
        resized.resize(1000);
        assert_eq!(below(), before + 1124 + 1000);
        resized.resize(1024);
        assert_eq!(below(), before + 1124);
        drop((blocks, resized));
        assert_eq!(below(), before);
        drop(old);
        assert_eq!(below(), before - 500);
    });
}

#[test]
fn the_small_blocks_of_the_peak_are_those_of_that_moment() {
    in_child(&[], || {
        // Neither this block nor a recorded one is below the threshold.
        let _old = Raw::new(1500);
        let session = memtrace::builder().min_size(1024).start().unwrap();
        let small = [Raw::new(700), Raw::new(30)];
        let expected = memtrace::stats(Device::Cpu).below_threshold;
        let large = Raw::new(MIB);
        drop((small, large));
        let _later = [500; 9].map(Raw::new);
        let snapshot = session.snapshot();
        assert_eq!(cpu(&snapshot).peak.below_threshold, expected);
        assert_eq!(cpu(&snapshot).below_threshold, memtrace::stats(Device::Cpu).below_threshold);
        assert_eq!(cpu(&snapshot).below_threshold, expected - 730 + 4500);
    });
}

/// Records everything, and provides something to report.
fn record_all() -> (Session, Raw) {
    let session = memtrace::builder().min_size(0).start().unwrap();
    let block = memtrace::scope("kept", || Raw::new(1000));
    (session, block)
}

#[test]
fn snapshots_reports_and_exports_are_not_recorded_and_give_their_memory_back() {
    in_child(&[], || {
        let dir = std::env::temp_dir().join(format!("memtrace-own-memory-{}", std::process::id()));
        let files = ["a.json", "a.pickle", "a.svg", "a.folded"].map(|name| dir.join(name));
        let (session, _block) = record_all();
        // Each round has the call stacks of the one before: its code is there once.
        let count = std::hint::black_box(7);
        let rounds: Vec<_> = (0..count).map(|_| (export(&session, &files), own_bytes())).collect();
        // Returned paths belong to the program and are freed when the next one is written.
        let paths = 2 * files.len();
        // The first rounds resolve symbols, whose results are cached.
        for pair in rounds[2..].windows(2) {
            assert_eq!(pair[1], (pair[0].0 + paths, pair[0].1));
        }
        std::fs::remove_dir(dir).unwrap();
    });
}

/// Writes one file of each kind; returns the number of records before.
fn export(session: &Session, [json, pickle, svg, folded]: &[PathBuf; 4]) -> usize {
    let snapshot = session.snapshot();
    write!(std::io::sink(), "{}", snapshot.report()).unwrap();
    snapshot.write(json).unwrap();
    snapshot.write(pickle).unwrap();
    snapshot.write(svg).unwrap();
    snapshot.write(folded).unwrap();
    [json, pickle, svg, folded].into_iter().for_each(|path| remove(path, &snapshot));
    records(&snapshot).len()
}

fn remove(path: &Path, _written: &Snapshot) {
    assert!(path.metadata().unwrap().len() > 0);
    std::fs::remove_file(path).unwrap();
}

/// Records that `work` adds to the log, beyond those of a snapshot.
fn added(session: &Session, work: impl FnOnce()) -> Vec<u64> {
    let before = records(&session.snapshot()).len();
    work();
    records(&session.snapshot())[before..].iter().map(|record| record.size).collect()
}

#[test]
fn a_measurement_adds_only_what_its_code_allocates_to_a_recording() {
    in_child(&[], || {
        let (session, _block) = record_all();
        let measured = added(&session, || drop(memtrace::measure(|| drop(Raw::new(77)))));
        assert_eq!(measured, [77, 77], "measure");
        let asserted = added(&session, || memtrace::assert_peak!(100, drop(Raw::new(78))));
        assert_eq!(asserted, [78, 78], "assert_peak!");
    });
}

#[test]
fn reading_the_limit_of_an_assertion_is_not_recorded() {
    in_child(&[], || {
        let (session, _block) = record_all();
        let read = added(&session, || drop(memtrace::PeakLimit::new().limit("100 B")));
        assert_eq!(read, [0; 0]);
    });
}

#[test]
fn scopes_and_counters_add_nothing_to_a_recording() {
    in_child(&[], || {
        let (session, _block) = record_all();
        let queried = added(&session, || {
            memtrace::scope("a", || memtrace::Context::current().scope(|| drop(memtrace::scope_guard("b"))));
            black_box(memtrace::stats(Device::Cpu));
            memtrace::reset_peak(Device::Cpu);
            assert!(memtrace::is_recording());
        });
        assert_eq!(queried, [0; 0]);
    });
}

#[test]
fn a_returned_path_is_freed_as_the_programs_memory() {
    in_child(&[], || {
        let path = std::env::temp_dir().join(format!("memtrace-own-path-{}.memtrace", std::process::id()));
        memtrace::start().unwrap().snapshot().write(&path).unwrap();
        let read = || drop(memtrace::open(path.clone()).unwrap());
        read();
        let own = own_bytes();
        read();
        assert_eq!(own_bytes(), own);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn one_session_after_another_holds_no_more_memory() {
    in_child(&[], || {
        let mut own = Vec::with_capacity(5);
        for _ in 0..5 {
            let (session, block) = record_all();
            drop((session.snapshot(), block, session));
            own.push(own_bytes());
        }
        assert_eq!(own[2..], [own[1]; 3]);
    });
}
