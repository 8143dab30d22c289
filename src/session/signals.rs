//! Signals that may ask for a snapshot.

use crate::error::{Error, Kind};

#[cfg(all(unix, feature = "signals"))]
pub(super) use super::listen::listen;

#[cfg(not(all(unix, feature = "signals")))]
pub(super) fn listen(signal: i32) -> Result<(), Error> {
    Err(Error::from(Kind::Signal(signal.to_string())))
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
    let is_there = cfg!(all(unix, feature = "signals"));
    let by_name = named.iter().filter(|_| is_there).find(|(known, _)| *known == name).map(|(_, number)| *number);
    by_name
        .or_else(|| text.parse().ok().filter(|number| can_be_caught(*number)))
        .ok_or_else(|| Error::from(Kind::Signal(text.to_owned())))
}

/// Not those that cannot be, that mean a defect of the program, or that the C library has taken for itself.
#[cfg(all(unix, feature = "signals"))]
fn can_be_caught(signal: i32) -> bool {
    let refused = [libc::SIGKILL, libc::SIGSTOP, libc::SIGILL, libc::SIGFPE, libc::SIGSEGV].contains(&signal);
    #[cfg(target_os = "linux")]
    let is_real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal);
    #[cfg(not(target_os = "linux"))]
    let is_real_time = false;
    is_real_time || ((1..32).contains(&signal) && !refused)
}

#[cfg(not(all(unix, feature = "signals")))]
fn can_be_caught(_signal: i32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux", feature = "signals"))]
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
