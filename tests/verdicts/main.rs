//! Reliability of the assertions: each must pass for programs without a leak, and fail for programs with one; on one
//! thread, on many, with pools, tasks, channels and containers.
//!
//! `MEMTRACE_TEST_RUNS=1000 cargo test --test verdicts` runs every program a thousand times.

mod baselines;
mod clean;
mod leaking;
mod one_time;
mod peaks;
mod planted;

use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrace::Failure;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

type Verdict = Result<(), Failure>;

fn runs() -> usize {
    runs_or(2)
}

/// How often a program runs that takes longer than others.
fn runs_or(usual: usize) -> usize {
    std::env::var("MEMTRACE_TEST_RUNS").map_or(usual, |runs| runs.parse().unwrap())
}

/// One program at a time, because together they would start very many threads.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program passes in every run.
#[track_caller]
fn passes(program: impl Fn() -> Verdict) {
    let _one = one_at_a_time();
    let alarms: Vec<String> = (0..runs()).filter_map(|_| program().err()).map(|failure| removed(&failure)).collect();
    println!("{}: {} false alarms of {}", name(), alarms.len(), runs());
    assert!(alarms.is_empty(), "{} false alarms of {}, the first: {}", alarms.len(), runs(), alarms[0]);
}

/// The program fails in every run.
#[track_caller]
fn fails(program: impl Fn() -> Verdict) {
    let _one = one_at_a_time();
    let found = (0..runs()).filter(|_| program().err().inspect(|failure| drop(removed(failure))).is_some()).count();
    println!("{}: found {found} of {}", name(), runs());
    assert_eq!(found, runs());
}

fn name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// The failure's text; its snapshot is removed.
fn removed(failure: &Failure) -> String {
    failure.snapshot().map(std::fs::remove_file).transpose().unwrap();
    failure.to_string()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
