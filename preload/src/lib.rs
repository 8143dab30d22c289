//! memtrace in programs that were not changed: see the README.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::sync::{Mutex, PoisonError};

use memtrace::Session;

#[used]
// SAFETY: the loader calls the functions in this section; this one stores a function.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Until the process ends: the snapshot is written at its exit.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

extern "C" fn start() {
    let is_asked = ["MEMTRACE", "MEMTRACE_OUT"].iter().any(|name| std::env::var_os(name).is_some());
    if !memtrace::on_cuda_start(record) && is_asked {
        eprintln!(
            "memtrace: the program has memtrace in it; that one can record, by `memtrace::init()`, and the preloaded one does not"
        );
    }
}

fn record() {
    match memtrace::builder().dump_at_end(true).start() {
        Ok(session) => *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(session),
        Err(error) => eprintln!("memtrace: nothing is recorded: {error}"),
    }
}
