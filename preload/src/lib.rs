//! `LD_PRELOAD` library: records programs that were not changed. NVTX loads it, too, and NVTX's ranges become scopes.
//! See the README.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if nobody can read: `memtrace::tell` does not"
)]
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

mod alone;
mod malloc;
mod mappings;
mod mode;
mod next;
mod nvtx;
mod stack_bounds;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use memtrace::Session;

/// Keeps memtrace's own memory apart from the program's.
#[global_allocator]
static OWN: memtrace::malloc::System = memtrace::malloc::System;

#[used]
// SAFETY: the loader calls the functions whose addresses are in this section. This one does not unwind.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

/// The session. It lasts until the process ends, whose exit writes the snapshot, or until `alone` ends the recording.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Set by the constructor, before any other function of this library is called; false again once the recording has
/// ended for good.
static MAY_RECORD: AtomicBool = AtomicBool::new(false);

/// Whether this copy of memtrace records, now or from the first `cuInit` on. False if the program contains memtrace.
fn may_record() -> bool {
    MAY_RECORD.load(Relaxed)
}

/// If `cargo memtrace run` started the process, records it from here on. Records other processes from their first
/// `cuInit` on.
extern "C" fn construct() {
    let _errno = memtrace::keep_errno();
    if memtrace::malloc::stands_back() {
        return;
    }
    let is_requested = ["MEMTRACE", "MEMTRACE_OUT"].iter().any(|name| std::env::var_os(name).is_some());
    if memtrace::on_cuda_start(record) {
        MAY_RECORD.store(true, Relaxed);
        if is_started_by_run() {
            record_all();
        }
    } else if is_requested {
        memtrace::tell(
            "the program has memtrace in it, so the preloaded copy records nothing; to record, call `memtrace::init()` in the program",
        );
    }
}

/// Whether `MEMTRACE_RUN` is `all`, which stands for every process, or the id of this process's parent. If the process
/// executes another program, the parent stays the same.
fn is_started_by_run() -> bool {
    let Ok(run) = std::env::var("MEMTRACE_RUN") else { return false };
    run == "all" || run.parse() == Ok(std::os::unix::process::parent_id())
}

/// Records the heap and CUDA memory from here on, if the heap can be recorded.
fn record_all() {
    match mode::refused() {
        None => record(),
        Some(why) => {
            memtrace::tell(&format!("the heap is not recorded: {why}; its CUDA memory is, from the first use on"));
        }
    }
}

fn record() {
    if !MAY_RECORD.load(Relaxed) || SESSION.lock().is_ok_and(|session| session.is_some()) {
        return;
    }
    match memtrace::builder().dump_at_end(true).start() {
        Ok(session) => {
            *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            // The first stack that is taken needs much more stack memory than later ones. So it is taken here, because
            // a signal handler may have little stack memory.
            memtrace::take_stack();
        }
        Err(error) => memtrace::tell(&format!("nothing is recorded: {error}")),
    }
}
