//! Signals that reach this command while a program runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

/// Forwards signals until it is dropped.
pub(crate) struct Forwarded(Handle);

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Signals for this process go to the program, too. A terminal sends Ctrl-C and Ctrl-\ to both already.
pub(crate) fn forward_to(program: u32) -> io::Result<Forwarded> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT])?;
    let handle = signals.handle();
    let program = i32::try_from(program).ok().and_then(Pid::from_raw);
    thread::spawn(move || {
        for signal in signals.forever() {
            let forwarded = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                SIGUSR1 => Signal::USR1,
                SIGUSR2 => Signal::USR2,
                _ => continue,
            };
            // The program may have ended meanwhile.
            let _ = program.map(|program| kill_process(program, forwarded));
        }
    });
    Ok(Forwarded(handle))
}

/// A file that reaches the limit on sizes (`ulimit -f`) is an error of the write, instead of a signal that ends this command and
/// leaves temporary files. Programs that it runs have the signal as ever.
pub(crate) fn files_too_large_are_errors() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
