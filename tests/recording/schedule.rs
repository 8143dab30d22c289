//! Recording by steps, with the schedule of torch.profiler.

use std::sync::{Arc, Mutex};

use crate::support::{MIB, Raw, alone, cpu};
use memtrace::snapshot::Replay;
use memtrace::{Builder, Session, Snapshot, scope};

/// The figures of a snapshot that the tests compare.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    records: usize,
    peak: u64,
    live: Vec<u64>,
    not_recorded: u64,
    /// Path, calls, own peak and total peak, in MiB.
    scopes: Vec<(String, u64, u64, Option<u64>)>,
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn seen(snapshot: &Snapshot) -> Seen {
    let device = cpu(snapshot);
    let mut replay = Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    assert_eq!(replay.blocks(), device.live);
    let at_peak: u64 = device.peak.blocks.iter().map(|block| block.size).sum();
    assert_eq!(at_peak + device.peak.not_recorded, device.peak.bytes);
    assert!(device.live.iter().all(|block| block.stack != memtrace::snapshot::StackId::NONE));
    Seen {
        records: device.records.len(),
        peak: mib(device.peak.bytes),
        live: device.live.iter().map(|block| mib(block.size)).collect(),
        not_recorded: mib(device.not_recorded),
        scopes: device
            .scopes
            .iter()
            .map(|s| (snapshot.context_path(s.context), s.calls, mib(s.own_peak), s.total_peak.map(mib)))
            .filter(|(path, ..)| path.starts_with("step"))
            .collect(),
    }
}

fn collecting(builder: Builder) -> (Session, Arc<Mutex<Vec<Seen>>>) {
    let list = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&list);
    let ready = move |snapshot: &Snapshot| into.lock().unwrap().push(seen(snapshot));
    (builder.min_size(MIB).on_trace_ready(ready).start().unwrap(), list)
}

/// A step keeps one block of as many MiB as its number, and frees another of 10 MiB.
fn step(session: &Session, kept: &mut Vec<Raw>) {
    let number = kept.len() + 1;
    scope(format!("step {number}"), || {
        kept.push(Raw::new(number * MIB));
        drop(Raw::new(10 * MIB));
    });
    session.step();
}

#[test]
fn only_active_steps_are_delivered_and_blocks_of_warm_up_are_known() {
    let _alone = alone();
    let (session, list) = collecting(memtrace::builder().schedule(1, 1, 2, 2));
    let mut kept = Vec::new();
    (0..10).for_each(|_| step(&session, &mut kept));
    drop(session);
    let list = list.lock().unwrap().clone();
    let names = |seen: &Seen| seen.scopes.iter().map(|scope| scope.0.clone()).collect::<Vec<_>>();
    assert_eq!(list.len(), 2);
    // Step 1 waits, 2 warms up, 3 and 4 are active: 4 allocations and 2 frees.
    assert_eq!((list[0].records, list[0].live.clone()), (6, vec![2, 3, 4]));
    assert_eq!(names(&list[0]), ["step 3", "step 4"]);
    assert_eq!(list[0].peak, list[0].not_recorded + 2 + 3 + 4 + 10);
    assert_eq!(list[0].scopes[1], ("step 4".into(), 1, 14, Some(list[0].peak)));
    assert_eq!((list[1].records, list[1].live.clone()), (6, vec![6, 7, 8]));
    assert_eq!(names(&list[1]), ["step 7", "step 8"]);
    // Records of the first cycle are from before the second.
    assert_eq!(list[1].not_recorded, list[0].not_recorded + 2 + 3 + 4 + 5);
}

#[test]
fn consecutive_cycles_keep_live_blocks() {
    let _alone = alone();
    let (session, list) = collecting(memtrace::builder().schedule(0, 0, 1, 0));
    let mut kept = Vec::new();
    (0..3).for_each(|_| step(&session, &mut kept));
    kept.pop();
    drop(session);
    let list = list.lock().unwrap().clone();
    let live: Vec<_> = list.iter().map(|seen| (seen.records, seen.live.clone())).collect();
    assert_eq!(live, [(3, vec![1]), (3, vec![1, 2]), (3, vec![1, 2, 3]), (1, vec![1, 2])]);
    assert_eq!(mib(list[2].peak << 20), list[2].not_recorded + 1 + 2 + 3 + 10);
}

#[test]
fn a_session_that_ends_during_active_steps_delivers_them() {
    let _alone = alone();
    let (session, list) = collecting(memtrace::builder().schedule(0, 0, 5, 1));
    let mut kept = Vec::new();
    (0..2).for_each(|_| step(&session, &mut kept));
    session.end().unwrap();
    assert_eq!(list.lock().unwrap().len(), 1);
    assert_eq!(list.lock().unwrap()[0].live, [1, 2]);
}

#[test]
fn nothing_is_recorded_while_waiting() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).schedule(2, 0, 1, 1).start().unwrap();
    assert!(!memtrace::is_recording());
    assert!(memtrace::start().unwrap_err().is_already_recording());
    session.step();
    session.step();
    assert!(memtrace::is_recording());
    session.step();
    assert!(!memtrace::is_recording());
    assert!(session.snapshot().devices.is_empty());
    drop(session);
    assert!(memtrace::start().is_ok());
}

#[test]
fn without_a_schedule_a_session_is_one_cycle() {
    let _alone = alone();
    let (session, list) = collecting(memtrace::builder());
    let mut kept = Vec::new();
    (0..2).for_each(|_| step(&session, &mut kept));
    drop(session);
    assert_eq!(list.lock().unwrap().iter().map(|seen| seen.records).collect::<Vec<_>>(), [6]);
}

#[test]
fn a_schedule_without_active_steps_is_refused() {
    let error = memtrace::builder().schedule(1, 1, 0, 1).start().unwrap_err().to_string();
    assert!(error.contains("active"), "{error}");
}

#[test]
fn the_memory_of_every_cycle_is_accounted_for() {
    let _alone = alone();
    let before = crate::support::bytes_before_recording();
    {
        let (session, list) = collecting(memtrace::builder().schedule(1, 1, 1, 0));
        let mut kept = Vec::new();
        (0..7).for_each(|_| step(&session, &mut kept));
        drop(session);
        assert_eq!(list.lock().unwrap().len(), 2);
    }
    assert_eq!(crate::support::bytes_before_recording(), before);
}

#[test]
fn the_trace_handler_writes_two_files_a_cycle() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let handler = memtrace::trace_handler(dir.path());
    let session = memtrace::builder().min_size(MIB).schedule(0, 0, 1, 2).on_trace_ready(handler).start().unwrap();
    let mut kept = Vec::new();
    (0..3).for_each(|_| step(&session, &mut kept));
    drop(session);
    let mut names: Vec<String> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    let pid = format!("_{}_", std::process::id());
    assert!(names.iter().all(|name| name.contains(&pid) && name.contains("recording")), "{names:?}");
    let ends = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((ends(".pickle.gz"), ends(".trace.json.gz")), (2, 2));
}

#[test]
fn a_panic_in_the_callback_ends_neither_the_schedule_nor_other_sessions() {
    let _alone = alone();
    let panicking = |schedule: Builder| schedule.min_size(MIB).on_trace_ready(|_| panic!("in the callback"));
    let session = panicking(memtrace::builder().schedule(1, 0, 1, 1)).start().unwrap();
    session.step();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| session.step())).is_err());
    assert!(!memtrace::is_recording(), "the cycle is over");
    drop(session);
    let session = panicking(memtrace::builder()).start().unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(session))).is_err());
    assert!(memtrace::start().is_ok());
}
