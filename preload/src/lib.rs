//! `LD_PRELOAD` library: records programs that were not changed. See the README.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::sync::{Mutex, PoisonError};

use memtrace::Session;

#[used]
// SAFETY: the loader calls the functions in this section; this one stores a function.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

/// The session, until the process ends: its exit writes the snapshot.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

extern "C" fn construct() {
    let is_requested = ["MEMTRACE", "MEMTRACE_OUT"].iter().any(|name| std::env::var_os(name).is_some());
    if !memtrace::on_cuda_start(record) && is_requested {
        eprintln!(
            "memtrace: the program has memtrace in it, so the preloaded copy records nothing; to record, call `memtrace::init()` in the program"
        );
    }
}

fn record() {
    match memtrace::builder().dump_at_end(true).start() {
        Ok(session) => *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(session),
        Err(error) => eprintln!("memtrace: nothing is recorded: {error}"),
    }
}
