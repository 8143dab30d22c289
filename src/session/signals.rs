//! Snapshots that a signal asks for. Its handler sets a flag, at which a thread of our own looks: a descriptor to wake it by
//! might be another file by then, and would be a forked child's, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{background, recording, say};
use crate::error::{Error, Kind};

/// Between two looks: signals that come in between are one.
const INTERVAL: Duration = Duration::from_millis(100);

/// A thread that writes a snapshot at each signal of this kind.
#[cfg(unix)]
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

#[cfg(unix)]
fn start_listening(signal: i32) -> std::io::Result<()> {
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, Arc::clone(&asked))?;
    let work = move || {
        let mut watch = background::Watch::new();
        while !watch.is_left_alone() {
            std::thread::sleep(INTERVAL);
            if asked.swap(false, Ordering::Acquire) {
                dump_signalled(signal);
            }
        }
    };
    background::spawn(c"memtrace-signal", work)
}

#[cfg(not(unix))]
pub(super) fn listen(signal: i32) -> Result<(), Error> {
    Err(Error::from(Kind::Signal(signal.to_string())))
}

#[cfg(unix)]
fn dump_signalled(signal: i32) {
    let recording = recording::current().filter(|recording| recording.dumps.signal == Some(signal));
    match recording {
        Some(recording) => {
            recording.flush();
            recording.dumps.write(&recording, "on a signal");
        }
        None => say("a signal asked for a snapshot, but nothing is being recorded"),
    }
}

/// `USR2`, `SIGUSR2` or a number.
pub(super) fn signal_number(text: &str) -> Result<i32, Error> {
    let named = [("USR1", 10), ("USR2", 12), ("HUP", 1), ("QUIT", 3), ("ALRM", 14), ("WINCH", 28)];
    #[cfg(unix)]
    let named = {
        let numbers = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGHUP, libc::SIGQUIT, libc::SIGALRM, libc::SIGWINCH];
        std::array::from_fn::<_, 6, _>(|at| (named[at].0, numbers[at]))
    };
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let by_name = named.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    by_name
        .or_else(|| text.parse().ok().filter(|number| can_be_caught(*number)))
        .ok_or_else(|| Error::from(Kind::Signal(text.to_owned())))
}

/// Not those that cannot be, that mean a defect of the program, or that the C library has taken for itself.
#[cfg(unix)]
fn can_be_caught(signal: i32) -> bool {
    let refused = [libc::SIGKILL, libc::SIGSTOP, libc::SIGILL, libc::SIGFPE, libc::SIGSEGV].contains(&signal);
    #[cfg(target_os = "linux")]
    let is_real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal);
    #[cfg(not(target_os = "linux"))]
    let is_real_time = false;
    is_real_time || ((1..32).contains(&signal) && !refused)
}

#[cfg(not(unix))]
fn can_be_caught(_signal: i32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_signals_are_those_that_a_program_may_use() {
        assert_eq!(["USR2", "SIGHUP", "34", "64"].map(|text| signal_number(text).unwrap()), [12, 1, 34, 64]);
        for none in ["0", "-1", "9", "11", "19", "32", "33", "65", "USR3", ""] {
            assert!(signal_number(none).is_err(), "{none}");
        }
    }
}
