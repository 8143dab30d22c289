//! Processes forked from a recording process behave as if memtrace were not there.
//!
//! A child that hangs is killed after a while, and the test fails.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use memtrace::{Context, Session, scope};
use tracing_subscriber::prelude::*;

use crate::child::in_child;
use crate::support::{self, MIB, Raw};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn _exit(code: i32) -> !;
}

const WNOHANG: i32 = 1;
const SIGKILL: i32 = 9;

/// A forked child that runs for this long counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// Forks and runs `work` in the child; panics unless it ends in time and without a panic.
fn in_fork(work: impl Fn() + std::panic::RefUnwindSafe) {
    // SAFETY: the child calls only `work` and `_exit`; glibc lets it allocate.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = if catch_unwind(&work).is_ok() { 0 } else { 1 };
        // SAFETY: ends the process without the parent's exit handlers.
        unsafe { _exit(code) };
    }
    let status = outcome(pid);
    assert_eq!(status, 0, "the child was ended by signal {} or with code {}", status & 0x7f, status >> 8);
}

/// Waits for a child and kills it if it hangs; does not allocate.
fn outcome(pid: i32) -> i32 {
    let (started, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: `status` is valid for writes.
        if unsafe { waitpid(pid, &raw mut status, WNOHANG) } == pid {
            return status;
        }
        if started.elapsed() > PATIENCE {
            // SAFETY: the child has not been waited for, so its id is valid.
            unsafe { kill(pid, SIGKILL) };
        }
        std::thread::yield_now();
    }
}

/// Runs `main` while two threads repeat `noise`.
fn beside<T>(noise: fn(), main: impl FnOnce() -> T) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Relaxed) {
                    noise();
                }
            });
        }
        let outcome = catch_unwind(std::panic::AssertUnwindSafe(main));
        stop.store(true, Relaxed);
        outcome.unwrap();
    });
}

fn record_all() -> Session {
    memtrace::builder().min_size(0).max_entries(1000).start().unwrap()
}

fn allocate_a_lot() {
    let mut blocks: Vec<Raw> = (1..1000).map(Raw::new).collect();
    blocks.iter_mut().step_by(3).for_each(|block| block.resize(5000));
    let text: String = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!((blocks.len(), text.len()), (999, 2890));
}

#[test]
fn children_forked_while_others_allocate_are_not_recorded_and_do_not_hang() {
    in_child(&[], || {
        let session = record_all();
        let kept = Raw::new(MIB);
        let allocate = || drop((Raw::new(100), Raw::new(3000)));
        beside(allocate, || {
            for _ in 0..50 {
                in_fork(|| {
                    allocate_a_lot();
                    assert!(!memtrace::is_recording());
                    assert!(session.snapshot().devices.is_empty());
                    assert!(!memtrace::start().unwrap_err().is_already_recording());
                    assert_eq!(kept.size(), MIB as u64);
                });
            }
        });
        let after = Raw::new(MIB);
        let live = support::live(&session.snapshot());
        assert!(live.contains(&kept.key()) && live.contains(&after.key()));
    });
}

#[test]
fn children_forked_while_others_open_scopes_do_not_hang() {
    in_child(&[], || {
        let session = record_all();
        beside(
            || scope("theirs", || ()),
            || {
                for _ in 0..50 {
                    in_fork(|| {
                        scope("own", || Context::current().scope(allocate_a_lot));
                        assert!(session.snapshot().devices.is_empty());
                    });
                }
            },
        );
    });
}

#[test]
fn children_forked_while_others_make_spans_do_not_hang() {
    in_child(&[], || {
        tracing_subscriber::registry().with(memtrace::layer()).init();
        let session = record_all();
        enter_spans();
        beside(enter_spans, || {
            for _ in 0..50 {
                in_fork(|| {
                    (0..100).for_each(|_| enter_spans());
                    assert!(session.snapshot().devices.is_empty());
                });
            }
        });
    });
}

fn enter_spans() {
    let spans = [tracing::trace_span!("outer"), tracing::trace_span!("inner")];
    spans[0].in_scope(|| spans[1].in_scope(|| std::hint::black_box(())));
}

#[test]
fn children_forked_while_others_measure_do_not_hang() {
    in_child(&[], || {
        let _session = record_all();
        beside(measure, || (0..50).for_each(|_| in_fork(measure)));
    });
}

/// Measures at many depths, to reach every part of the stack table.
fn measure() {
    (0..60).for_each(measure_at);
}

fn measure_at(depth: usize) {
    match depth {
        0 => assert_eq!(memtrace::measure(|| drop(Raw::new(100))).peak, 100),
        _ => std::hint::black_box(measure_at)(depth - 1),
    }
}

#[test]
fn children_forked_inside_a_measurement_do_not_hang() {
    in_child(&[], || {
        // It records nothing; memtrace watches for forks from the first session on.
        let _session = memtrace::builder().enabled(memtrace::Enabled::Off).start().unwrap();
        beside(measure, || {
            let inside = memtrace::measure(|| {
                (0..50).for_each(|_| in_fork(|| (1..50).for_each(|size| drop(Raw::new(size)))));
                Raw::new(10)
            });
            assert_eq!((inside.peak, inside.leaked), (10, 10));
        });
    });
}

#[test]
fn children_forked_while_others_take_stacks_may_ask_the_loader() {
    extern "C" fn next(_: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> libc::c_int {
        0
    }
    in_child(&[], || {
        let allocate = || drop(std::hint::black_box(vec![1u8; 100]));
        beside(allocate, || {
            beside(allocate, || {
                let forks = || {
                    // SAFETY: the function ignores what it is given.
                    let ask = || assert_eq!(unsafe { libc::dl_iterate_phdr(Some(next), std::ptr::null_mut()) }, 0);
                    (0..400).for_each(|_| in_fork(ask));
                };
                let _ = memtrace::measure(forks);
            });
        });
    });
}

#[test]
fn a_child_forked_before_the_session_may_record_itself() {
    in_child(&[], || {
        drop(record_all());
        in_fork(|| {
            let session = memtrace::builder().min_size(MIB).start().unwrap();
            let block = Raw::new(MIB);
            assert_eq!(support::live(&session.snapshot()), [block.key()]);
        });
    });
}
