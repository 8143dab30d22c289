//! Snapshots on a signal.
//!
//! The handler only sets a flag, which a background thread polls. A self-pipe would wake the thread at once, but the
//! program may close the pipe's descriptor and reuse its number, and forked children would inherit the pipe.

use std::fmt::Debug;
use std::str::FromStr;

#[cfg(all(unix, feature = "signals"))]
pub(super) use supported::listen;

use crate::error::Error;

/// A signal that asks for a snapshot; see [`Builder::dump_on_signal`](crate::Builder::dump_on_signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// `SIGUSR1`.
    Usr1,
    /// `SIGUSR2`.
    Usr2,
    /// `SIGHUP`.
    Hup,
    /// `SIGQUIT`.
    Quit,
    /// `SIGALRM`.
    Alrm,
    /// `SIGWINCH`.
    Winch,
    /// Another signal that can be caught, by its number.
    Number(i32),
}

const NAMED: [Signal; 6] = [Signal::Usr1, Signal::Usr2, Signal::Hup, Signal::Quit, Signal::Alrm, Signal::Winch];

/// Parses `USR2`, `SIGUSR2` or a number.
impl FromStr for Signal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let named = NAMED.into_iter().find(|signal| format!("{signal:?}").to_uppercase() == name);
        let signal = named.or_else(|| text.parse().ok().map(Self::Number));
        signal.filter(|signal| signal.number().is_ok()).ok_or_else(|| refused(text))
    }
}

impl Signal {
    #[cfg(not(all(unix, feature = "signals")))]
    pub(super) fn number(self) -> Result<i32, Error> {
        Err(refused(self))
    }
}

#[cfg(not(all(unix, feature = "signals")))]
pub(super) fn listen(signal: i32) -> Result<(), Error> {
    Err(refused(signal))
}

fn refused(signal: impl Debug) -> Error {
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

    use super::{Signal, refused};
    use crate::error::Error;
    use crate::session::{background, recording, say};

    /// How often the flag is polled. Signals within one interval count as one.
    const INTERVAL: Duration = Duration::from_millis(100);

    impl Signal {
        pub(in crate::session) fn number(self) -> Result<c_int, Error> {
            let number = match self {
                Self::Usr1 => libc::SIGUSR1,
                Self::Usr2 => libc::SIGUSR2,
                Self::Hup => libc::SIGHUP,
                Self::Quit => libc::SIGQUIT,
                Self::Alrm => libc::SIGALRM,
                Self::Winch => libc::SIGWINCH,
                Self::Number(number) => number,
            };
            can_be_caught(number).then_some(number).ok_or_else(|| refused(self))
        }
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
        // For each signal, the pid of the process that listens to it. A forked child inherits the handlers, but not
        // the threads, so the parent's pid does not count there.
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
            let number = |text: &str| text.parse().and_then(Signal::number);
            assert_eq!(["USR2", "SIGHUP", "34", "64"].map(|text| number(text).unwrap()), [12, 1, 34, 64]);
            for none in ["0", "-1", "9", "11", "19", "32", "33", "65", "USR3", ""] {
                assert!(none.parse::<Signal>().is_err(), "{none}");
            }
        }
    }
}
