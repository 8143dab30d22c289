//! Snapshots on a signal.
//!
//! The handler only sets a flag, which a background thread polls. A self-pipe would wake the thread at once, but the
//! program may close the descriptor and reuse its number, and forked children would inherit it.

use crate::error::Error;

#[cfg(all(unix, feature = "signals"))]
pub(super) use supported::{listen, signal_number};

#[cfg(not(all(unix, feature = "signals")))]
pub(super) fn listen(signal: i32) -> Result<(), Error> {
    Err(refused(signal))
}

#[cfg(not(all(unix, feature = "signals")))]
pub(super) fn signal_number(text: &str) -> Result<i32, Error> {
    Err(refused(text))
}

fn refused(signal: impl ToString) -> Error {
    let signal = signal.to_string();
    Error::wrong(match cfg!(feature = "signals") {
        true => {
            format!("cannot listen to signal {signal:?}; give USR1, USR2 or the number of a signal that can be caught")
        }
        false => format!("cannot listen to signal {signal:?}: build memtrace with its feature `signals`"),
    })
}

#[cfg(all(unix, feature = "signals"))]
mod supported {
    use std::ffi::c_int;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use super::refused;
    use crate::error::Error;
    use crate::session::{background, recording, say};

    /// How often the flag is polled. Signals within one interval are one.
    const INTERVAL: Duration = Duration::from_millis(100);

    const NAMES: [(&str, c_int); 6] = [
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("HUP", libc::SIGHUP),
        ("QUIT", libc::SIGQUIT),
        ("ALRM", libc::SIGALRM),
        ("WINCH", libc::SIGWINCH),
    ];

    /// Reads `USR2`, `SIGUSR2` or a number.
    pub(in crate::session) fn signal_number(text: &str) -> Result<i32, Error> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let by_name = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        let by_number = || text.parse().ok().filter(|number| can_be_caught(*number));
        by_name.or_else(by_number).ok_or_else(|| refused(text))
    }

    /// False for signals that cannot be caught, that report a crash, or that the C library reserves.
    fn can_be_caught(signal: i32) -> bool {
        let refused = [libc::SIGKILL, libc::SIGSTOP, libc::SIGILL, libc::SIGFPE, libc::SIGSEGV].contains(&signal);
        #[cfg(target_os = "linux")]
        let is_real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal);
        #[cfg(not(target_os = "linux"))]
        let is_real_time = false;
        is_real_time || ((1..32).contains(&signal) && !refused)
    }

    /// Starts a thread that writes a snapshot whenever this signal arrives; once for each signal and process.
    pub(in crate::session) fn listen(signal: i32) -> Result<(), Error> {
        // The pid of the listening process: a forked child inherits the handlers, but not the threads.
        static LISTENING: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];
        let slot = usize::try_from(signal).ok().and_then(|signal| LISTENING.get(signal));
        let listening = slot.ok_or_else(|| refused(signal))?;
        let this = std::process::id();
        if listening.swap(this, Ordering::AcqRel) == this {
            return Ok(());
        }
        start_listening(signal).map_err(|_| {
            listening.store(0, Ordering::Release);
            refused(signal)
        })
    }

    fn start_listening(signal: i32) -> std::io::Result<()> {
        let arrived = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&arrived))?;
        background::repeat(c"memtrace-signal", INTERVAL, move || {
            if arrived.swap(false, Ordering::Acquire) {
                dump(signal);
            }
            true
        })
    }

    fn dump(signal: i32) {
        let Some(recording) = recording::current().filter(|recording| recording.dumps.signal == Some(signal)) else {
            say("a signal asked for a snapshot, but nothing is being recorded");
            return;
        };
        recording.flush();
        recording.dumps.write(&recording.snapshot(), "on a signal");
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
}
