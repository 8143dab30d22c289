//! Constructor that starts a recording before `main` if `MEMTRACE_AUTOSTART=1` asks for it. With it,
//! `cargo memtrace run` needs no call of `init` in the program.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};

use super::recording::{self, SharedRecording};
use super::{init, say};
use crate::errno::KeepErrno;
use crate::record::own;
use crate::variable;

/// True while a recording that this constructor began is active. The program's sessions share it.
static STARTED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls the functions in this section; this one does not unwind.
#[cfg_attr(not(miri), used, unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let _errno = KeepErrno::new();
    let is_on = || std::env::var_os("MEMTRACE_AUTOSTART").is_some_and(|value| value == "1");
    if variable::is_privileged() || !own(is_on) {
        return;
    }
    match catch_unwind(init) {
        Ok(Ok(started)) => STARTED.store(started, Ordering::Release),
        Ok(Err(error)) => own(|| say(&format!("nothing is recorded: {error}"))),
        Err(_) => {}
    }
}

/// The recording that the constructor began, if it did.
pub(super) fn shared() -> Option<SharedRecording> {
    STARTED.load(Ordering::Acquire).then(recording::current).flatten()
}
