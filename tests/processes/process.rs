//! Recordings at the end of threads and processes.

use std::cell::RefCell;
use std::process::exit;
use std::sync::Mutex;

use memtrace::snapshot::RecordKind::{Alloc, Free};
use memtrace::{Device, Session, scope};

use crate::child::{command, ended, if_child, in_child};
use crate::support::{MIB, Raw, bytes_before_recording, cpu, live, record_large, records};

/// Allocates a block before `main`.
const EARLY_BLOCK: &str = "TEST_EARLY_BLOCK";

static EARLY: Mutex<Option<Raw>> = Mutex::new(None);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);
static KEPT: Mutex<Vec<Raw>> = Mutex::new(Vec::new());

#[used]
// SAFETY: the loader calls the functions in this section; this one does not unwind.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn start() {
        if std::env::var_os(EARLY_BLOCK).is_some() {
            *EARLY.lock().unwrap() = Some(Raw::new(3 * MIB));
        }
    }
    start
};

/// Runs code in the destructor of a thread-local.
struct AtEnd(fn());

impl Drop for AtEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

fn at_thread_end(work: fn()) {
    AT_END.set(Some(AtEnd(work)));
}

fn on_a_thread(work: fn()) {
    std::thread::spawn(work).join().unwrap();
}

/// The exit code of a child that `body` ends. On the test's thread, because `exit` destroys the locals of its thread.
fn exit_code(body: fn()) -> Option<i32> {
    if_child(body);
    ended(&mut command(&[])).status.code()
}

#[test]
fn a_block_allocated_before_main_is_from_before_the_recording() {
    in_child(&[(EARLY_BLOCK, "1")], || {
        let session = record_large();
        let before = cpu(&session.snapshot()).not_recorded;
        let early = EARLY.lock().unwrap().take().unwrap();
        let key = early.key();
        drop(early);
        let snapshot = session.snapshot();
        assert_eq!(cpu(&snapshot).not_recorded, before - key.1);
        let log: Vec<_> = records(&snapshot).iter().map(|r| (r.kind, r.address, r.size, r.alloc_seq)).collect();
        assert_eq!(log, [(Free, key.0, key.1, None)]);
    });
}

#[test]
fn destructors_of_thread_locals_are_recorded() {
    in_child(&[], || {
        let session = record_large();
        on_a_thread(|| {
            at_thread_end(|| {
                drop(Raw::new(2 * MIB));
                KEPT.lock().unwrap().push(scope("last", || Raw::new(MIB)));
            });
            // memtrace's own thread-locals are first used after the one above, so they are destroyed first.
            scope("first", || drop(Raw::new(3 * MIB)));
        });
        let snapshot = session.snapshot();
        let log: Vec<_> = records(&snapshot).iter().map(|r| (r.kind, r.size / MIB as u64)).collect();
        assert_eq!(log, [(Alloc, 3), (Free, 3), (Alloc, 2), (Free, 2), (Alloc, 1)]);
        let kept = KEPT.lock().unwrap().remove(0);
        assert_eq!(live(&snapshot), [kept.key()]);
        assert_eq!(snapshot.context_path(cpu(&snapshot).live[0].context), "last");
        drop(kept);
        assert_eq!(live(&session.snapshot()), []);
    });
}

#[test]
fn a_session_may_start_in_a_destructor_of_a_thread_local() {
    in_child(&[], || {
        on_a_thread(|| {
            at_thread_end(|| {
                *SESSION.lock().unwrap() = Some(record_large());
                KEPT.lock().unwrap().push(Raw::new(MIB));
            });
            // As above: thread-locals of sessions are already destroyed.
            drop(record_large());
        });
        let session = SESSION.lock().unwrap().take().unwrap();
        KEPT.lock().unwrap().push(Raw::new(2 * MIB));
        assert_eq!(live(&session.snapshot()), KEPT.lock().unwrap().iter().map(Raw::key).collect::<Vec<_>>());
    });
}

#[test]
fn a_session_may_end_in_a_destructor_of_a_thread_local() {
    in_child(&[], || {
        let before = bytes_before_recording();
        *SESSION.lock().unwrap() = Some(record_large());
        let kept = Raw::new(MIB);
        on_a_thread(|| at_thread_end(|| drop(SESSION.lock().unwrap().take())));
        assert!(!memtrace::is_recording());
        assert_eq!(bytes_before_recording(), before + kept.size());
    });
}

#[test]
fn a_thread_can_measure_to_its_end() {
    in_child(&[], || {
        let session = record_large();
        on_a_thread(|| {
            at_thread_end(|| {
                assert_eq!(memtrace::measure(|| drop(Raw::new(7))).peak, 7);
                KEPT.lock().unwrap().push(Raw::new(MIB));
            });
            assert_eq!(memtrace::measure(|| drop(Raw::new(5))).peak, 5);
        });
        assert_eq!(live(&session.snapshot()), [KEPT.lock().unwrap()[0].key()]);
    });
}

#[test]
fn a_measurement_that_is_never_closed_ends_with_its_thread() {
    in_child(&[], || {
        let session = record_large();
        on_a_thread(|| {
            at_thread_end(|| KEPT.lock().unwrap().push(Raw::new(MIB)));
            std::mem::forget(memtrace::PeakLimit::new().limit(1).begin().unwrap());
            KEPT.lock().unwrap().push(Raw::new(2 * MIB));
        });
        let kept: Vec<_> = KEPT.lock().unwrap().drain(..).map(|block| block.key()).collect();
        let log: Vec<_> = records(&session.snapshot()).iter().map(|r| (r.address, r.size)).collect();
        assert_eq!(log[..2], kept);
        assert_eq!(live(&session.snapshot()), []);
    });
}

#[test]
fn a_recording_process_keeps_its_exit_code() {
    let code = exit_code(|| {
        let _session = memtrace::builder().min_size(0).start().unwrap();
        for _ in 0..2 {
            std::thread::spawn(|| {
                loop {
                    scope("busy", || drop(Raw::new(100)));
                }
            });
        }
        (0..100).for_each(|_| drop(Raw::new(1)));
        exit(42);
    });
    assert_eq!(code, Some(42));
}

unsafe extern "C" {
    safe fn atexit(work: extern "C" fn()) -> i32;
}

fn recorded() -> u64 {
    memtrace::stats(Device::Cpu).allocations.allocated
}

#[test]
fn destructors_that_run_at_exit_are_recorded() {
    let code = exit_code(|| {
        // The C library runs this after the destructors of this thread's locals. 43 means success.
        extern "C" fn last() {
            let (before, block) = (recorded(), Raw::new(MIB));
            let passed = before == 2 && recorded() == 3;
            drop(block);
            let freed = memtrace::stats(Device::Cpu).allocations.freed;
            if !(passed && freed == 3) {
                std::process::abort();
            }
        }
        std::mem::forget(record_large());
        at_thread_end(|| drop(Raw::new(MIB)));
        drop(Raw::new(MIB));
        assert_eq!(atexit(last), 0);
        exit(43);
    });
    assert_eq!(code, Some(43));
}

#[test]
fn a_session_may_end_at_exit() {
    let code = exit_code(|| {
        extern "C" fn last() {
            if memtrace::is_recording() || KEPT.lock().unwrap().pop().is_none() {
                std::process::abort();
            }
        }
        *SESSION.lock().unwrap() = Some(record_large());
        KEPT.lock().unwrap().push(Raw::new(MIB));
        at_thread_end(|| drop(SESSION.lock().unwrap().take()));
        assert_eq!(atexit(last), 0);
        exit(44);
    });
    assert_eq!(code, Some(44));
}
