//! Signals that reach this command while a program runs.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

/// Forwards signals until it is dropped.
pub(crate) struct Forwarded(Handle);

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Passes signals for this process on to the program, too. A terminal already sends Ctrl-C and Ctrl-\ to both.
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

/// Makes a write fail if a file reaches the size limit (`ulimit -f`). Otherwise a signal would end this command, which
/// would leave temporary files. Programs that this command runs still get the signal.
pub(crate) fn files_too_large_are_errors() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Ends this process as the program ended, also by a signal, because it stands for the program. The launcher of MPICH
/// ends the other ranks of a job if a signal ended one rank. It waits for the others if that rank exited with 128 plus
/// the signal's number.
pub(crate) fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // A core file would show this command, not the program.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        let _ = emulate_default_handler(signal);
    }
    // For a real-time signal, which `emulate_default_handler` does not know, this is the exit code that shells use.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
