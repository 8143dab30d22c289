//! Starts and ends of sessions and scopes: options, panics, nesting.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::support::{MIB, Raw, alone, cpu, live, record_large, records};
use memtrace::snapshot::{DeviceSnapshot, ScopeStats};
use memtrace::{Context, Device, Enabled, Error, SnapshotData, scope, scope_guard};
use rayon::prelude::*;

/// Scopes of the live blocks, in the order of allocation.
fn paths(snapshot: &SnapshotData) -> Vec<String> {
    cpu(snapshot).live.iter().map(|block| snapshot.context_path(block.context)).collect()
}

/// Statistics of one scope.
fn numbers(snapshot: &SnapshotData, path: &str) -> Option<ScopeStats> {
    let found = |stats: &&ScopeStats| snapshot.context_path(stats.context) == path;
    cpu(snapshot).scopes.iter().find(found).copied()
}

fn entered_and_left(device: &DeviceSnapshot) -> (usize, usize) {
    let entered = device.marks.iter().filter(|mark| mark.enter).count();
    (entered, device.marks.len() - entered)
}

fn refused(builder: memtrace::Builder) -> Error {
    let error = builder.start().unwrap_err();
    assert!(!memtrace::is_recording());
    error
}

#[test]
fn a_panic_inside_scopes_closes_them_and_frees_what_was_live() {
    let _alone = alone();
    let session = record_large();
    let outcome: Result<(), _> = catch_unwind(|| {
        let _first = Raw::new(MIB);
        scope("outer", || {
            let _second = Raw::new(2 * MIB);
            scope("inner", || {
                let _third = Raw::new(3 * MIB);
                // Without the panic hook, whose backtrace allocates.
                resume_unwind(Box::new("on purpose"))
            })
        })
    });
    assert!(outcome.is_err());
    let after = Raw::new(MIB);
    let snapshot = session.snapshot();
    assert_eq!((live(&snapshot), paths(&snapshot)), (vec![after.key()], vec![String::new()]));
    assert_eq!(records(&snapshot).len(), 7);
    assert_eq!(entered_and_left(cpu(&snapshot)), (2, 2));
    assert_eq!(cpu(&snapshot).peak.blocks.len(), 3);
    assert_eq!(numbers(&snapshot, "outer").unwrap().own_peak, 5 * MIB as u64);
}

/// A scope name whose conversion panics.
struct Unspeakable;

impl AsRef<str> for Unspeakable {
    fn as_ref(&self) -> &str {
        resume_unwind(Box::new("on purpose"))
    }
}

#[test]
fn a_thread_that_panicked_in_a_scope_does_not_disturb_later_recordings() {
    let _alone = alone();
    let session = record_large();
    let doomed = std::thread::spawn(|| {
        let _scope = scope_guard("doomed");
        let _block = Raw::new(MIB);
        scope(Unspeakable, || ());
    });
    doomed.join().unwrap_err();
    let again = |session: &memtrace::Session| {
        let block = scope("fine", || std::thread::spawn(|| scope("other", || Raw::new(MIB))).join().unwrap());
        let snapshot = session.snapshot();
        assert_eq!((live(&snapshot), paths(&snapshot)), (vec![block.key()], vec!["other".to_owned()]));
    };
    again(&session);
    drop(session);
    again(&record_large());
}

#[test]
fn a_session_may_end_inside_a_scope() {
    let _alone = alone();
    let session = record_large();
    let open = scope_guard("open");
    let block = Raw::new(MIB);
    let snapshot = session.snapshot();
    assert_eq!(paths(&snapshot), ["open"]);
    // A scope that is still open: its peak so far.
    assert_eq!(numbers(&snapshot, "open").unwrap().total_peak, Some(cpu(&snapshot).peak.bytes));
    drop((session, block));
    let next = record_large();
    let inside = Raw::new(MIB);
    drop(open);
    let outside = Raw::new(MIB);
    let snapshot = next.snapshot();
    assert_eq!(paths(&snapshot), ["open", ""]);
    assert_eq!(numbers(&snapshot, "open").unwrap().calls, 0);
    drop((inside, outside));
}

#[test]
fn a_session_may_start_inside_a_scope() {
    let _alone = alone();
    let open = scope_guard("open");
    let session = record_large();
    let mut blocks = vec![Raw::new(MIB)];
    blocks.push(scope("inner", || Raw::new(2 * MIB)));
    drop(open);
    blocks.push(Raw::new(4 * MIB));
    let snapshot = session.snapshot();
    assert_eq!(paths(&snapshot), ["open", "open > inner", ""]);
    let (open, inner) = (numbers(&snapshot, "open").unwrap(), numbers(&snapshot, "open > inner").unwrap());
    assert_eq!((open.calls, open.allocations, open.own_peak, open.total_peak), (0, 2, 3 * MIB as u64, None));
    assert_eq!((inner.calls, inner.allocations, inner.own_peak), (1, 1, 2 * MIB as u64));
    assert_eq!(inner.total_peak, Some(cpu(&snapshot).peak.bytes - 4 * MIB as u64));
}

#[test]
fn scopes_nested_too_deep_are_left_as_often_as_entered() {
    let _alone = alone();
    let session = record_large();
    let guards: Vec<_> = (0..100).map(|_| scope_guard("level")).collect();
    let block = Raw::new(MIB);
    drop(guards);
    let (entered, left) = entered_and_left(cpu(&session.snapshot()));
    assert_eq!(entered, left);
    let peaks = |snapshot: &SnapshotData| cpu(snapshot).scopes.iter().map(|s| s.total_peak).collect::<Vec<_>>();
    let before = peaks(&session.snapshot());
    let later = Raw::new(9 * MIB);
    assert_eq!(peaks(&session.snapshot()), before, "no scope is open any more");
    drop((block, later));
}

#[test]
fn scopes_nested_too_deep_are_reported() {
    let _alone = alone();
    let session = record_large();
    let guards: Vec<_> = (0..100).map(|_| scope_guard("level")).collect();
    assert!(session.snapshot().health.lost_scopes > 0);
    drop(guards);
}

#[test]
fn a_second_session_is_refused_and_the_first_continues() {
    let _alone = alone();
    let first = memtrace::builder().min_size(MIB).max_entries(100).start().unwrap();
    let mut blocks = vec![Raw::new(MIB)];
    let here = memtrace::builder().min_size(0).start().unwrap_err();
    let there = std::thread::spawn(|| memtrace::start().unwrap_err()).join().unwrap();
    for error in [here, there] {
        assert!(error.is_already_recording(), "{error}");
        assert!(error.to_string().contains("already recording"), "{error}");
    }
    blocks.push(Raw::new(2 * MIB));
    blocks.push(Raw::new(1));
    let snapshot = first.snapshot();
    assert_eq!(live(&snapshot), [blocks[0].key(), blocks[1].key()]);
    assert_eq!((records(&snapshot).len(), snapshot.settings.max_entries), (2, 100));
    drop(first);
    drop(memtrace::start().unwrap());
}

#[test]
fn a_disabled_session_records_nothing_and_works() {
    let _alone = alone();
    let session = memtrace::builder().enabled(Enabled::Off).min_size(MIB).start().unwrap();
    let _block = scope("somewhere", || Raw::new(MIB));
    assert!(!memtrace::is_recording());
    assert_eq!(memtrace::stats(Device::Cpu), memtrace::MemoryStats::default());
    let snapshot = session.snapshot();
    assert!(snapshot.devices.is_empty());
    assert!(snapshot.report().to_string().contains("nothing was recorded"));
    assert!(memtrace::start().unwrap_err().is_already_recording());
}

#[test]
fn a_session_of_the_state_keeps_everything_but_the_log() {
    let _alone = alone();
    let session = memtrace::builder().enabled(Enabled::State).max_entries(0).min_size(MIB).start().unwrap();
    assert!(memtrace::is_recording());
    let kept = scope("somewhere", || Raw::new(2 * MIB));
    drop(Raw::new(3 * MIB));
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    assert_eq!((device.records.len(), device.overwritten), (0, 0));
    assert_eq!((live(&snapshot), paths(&snapshot)), (vec![kept.key()], vec!["somewhere".to_owned()]));
    assert_eq!(device.peak.blocks.iter().map(|block| block.size).sum::<u64>(), 5 * MIB as u64);
    assert_eq!((device.stats.allocations.allocated, device.stats.allocations.freed), (2, 1));
}

#[test]
fn only_the_named_device_is_recorded() {
    let _alone = alone();
    let session = memtrace::builder().device(Device::Cuda(0)).start().unwrap();
    let _block = Raw::new(MIB);
    assert!(session.snapshot().device(Device::Cpu).is_none());
}

#[test]
fn invalid_options_are_refused_and_the_message_names_valid_ones() {
    let _alone = alone();
    let new = memtrace::builder;
    let cases = [
        (refused(new().max_entries(0)), ["max_entries is 0", "Enabled::State"]),
        (refused(new().min_size("3 KiB")), ["min_size is 3072 bytes", "use 2048 or 4096"]),
        (refused(new().min_size("banana")), ["\"banana\"", "512 MiB"]),
        (refused(new().min_size(-1)), ["\"-1\"", "512 MiB"]),
        (refused(new().min_size("banana").min_size("1 KiB")), ["\"banana\"", "512 MiB"]),
        (refused(new().stack_depth(1)), ["stack_depth is 1;", "2 to 256"]),
        (refused(new().stack_depth(1000)), ["stack_depth is 1000;", "2 to 256"]),
    ];
    for (error, parts) in cases {
        assert!(!error.is_already_recording());
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    for builder in [new().max_entries(1), new().min_size("4 KiB"), new().stack_depth(2), new().stack_depth(256)] {
        drop(builder.start().unwrap());
    }
}

#[test]
fn a_threshold_beyond_the_largest_power_of_two_is_refused_like_any_other() {
    let _alone = alone();
    let error = refused(memtrace::builder().min_size(u64::MAX));
    let text = catch_unwind(AssertUnwindSafe(|| error.to_string())).unwrap();
    assert!(text.contains(&(1u64 << 63).to_string()), "{text}");
}

#[test]
fn allocations_of_worker_threads_are_recorded_with_the_carried_context() {
    let _alone = alone();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let session = record_large();
    let own: Vec<Raw> = scope("outer", || pool.broadcast(|worker| Raw::new(MIB + worker.index())));
    let carried: Vec<Raw> = scope("outer", || {
        let here = Context::current();
        pool.install(|| (0..20).into_par_iter().map(|_| here.scope(|| Raw::new(2 * MIB))).collect())
    });
    let snapshot = session.snapshot();
    let mut expected: Vec<_> = own.iter().chain(&carried).map(Raw::key).collect();
    let mut found = live(&snapshot);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let (early, late) = cpu(&snapshot).live.split_at(3);
    let mut threads: Vec<u32> = early.iter().map(|block| block.thread.number()).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 3);
    assert!(early.iter().all(|block| snapshot.context_path(block.context).is_empty()));
    assert!(late.iter().all(|block| snapshot.context_path(block.context) == "outer"));
}
