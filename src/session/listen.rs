//! Snapshots that a signal asks for. Its handler sets a flag, at which a thread of our own looks: a descriptor to wake it by
//! might be another file by then, and would be a forked child's, too.
#![cfg(all(unix, feature = "signals"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{background, recording, say};
use crate::error::{Error, Kind};

/// Between two looks: signals that come in between are one.
const INTERVAL: Duration = Duration::from_millis(100);

/// A thread that writes a snapshot at each signal of this kind.
pub(super) fn listen(signal: i32) -> Result<(), Error> {
    // Which process listens: a forked child has the handlers of its parent, but not its threads.
    static LISTENING: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];
    let known = usize::try_from(signal).ok().and_then(|signal| LISTENING.get(signal));
    let Some(listening) = known else { return Err(Error::from(Kind::Signal(signal.to_string()))) };
    let this = std::process::id();
    if listening.swap(this, Ordering::AcqRel) == this {
        return Ok(());
    }
    start_listening(signal).map_err(|_| {
        listening.store(0, Ordering::Release);
        Error::from(Kind::Signal(signal.to_string()))
    })
}

fn start_listening(signal: i32) -> std::io::Result<()> {
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, Arc::clone(&asked))?;
    background::repeat(c"memtrace-signal", INTERVAL, move || {
        if asked.swap(false, Ordering::Acquire) {
            dump_signalled(signal);
        }
        true
    })
}

fn dump_signalled(signal: i32) {
    let recording = recording::current().filter(|recording| recording.dumps.signal == Some(signal));
    match recording {
        Some(recording) => {
            recording.flush();
            recording.dumps.write(|| recording.snapshot(), "on a signal");
        }
        None => say("a signal asked for a snapshot, but nothing is being recorded"),
    }
}
