//! Snapshots that are written without being called for: at the end, on a panic, on a signal, when an
//! allocation fails.

use std::sync::Once;
use std::sync::atomic::Ordering;

use super::collect::Copied;
use super::outputs::Snapshot;
use super::recording::{self, Shared};
use crate::record::{Leaves, guard, own};

/// The recording that is under way, if this thread may look for it.
pub(super) fn current() -> Option<Shared> {
    if guard::state() & guard::OWN != 0 { None } else { recording::current() }
}

pub(super) fn hook_panics() {
    // While a thread panics its hook cannot be changed.
    if std::thread::panicking() {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // What the hook takes for its message, with a backtrace most of all, is not what the program held.
            let copied = copy_at_panic();
            before(panic);
            if let Some(copied) = copied {
                copied.write();
            }
        }));
    });
}

/// What there was at a panic.
struct AtPanic {
    recording: Shared,
    copied: Copied,
}

/// `write` drops it inside.
impl Leaves for AtPanic {}

/// Only the first panic of a recording: a server may catch thousands.
fn copy_at_panic() -> Option<AtPanic> {
    let recording = current().filter(|recording| recording.dumps.on_panic)?;
    let is_first = !recording.panicked.swap(true, Ordering::AcqRel);
    is_first.then(|| own(|| AtPanic { copied: recording.copied(), recording }))
}

impl AtPanic {
    fn write(self) {
        own(|| {
            let Self { recording, copied } = self;
            recording.flush();
            recording.dumps.write(|| Snapshot::take(|| copied.finish()), "after a panic");
        });
    }
}

/// At the process's end, finishes what is under way. Registered with the C library, once.
pub(super) fn at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(exit::register);
}

mod exit {
    #![expect(unsafe_code, reason = "`atexit` is a C function")]

    use super::{guard, own, recording};

    pub(super) fn register() {
        // SAFETY: the function neither unwinds nor needs anything that is gone at exit. A failure (no
        // memory) leaves the process without a last snapshot.
        unsafe { libc::atexit(finish) };
    }

    extern "C" fn finish() {
        // Called out of work of ours, it might wait for itself.
        if guard::state() & guard::OWN != 0 {
            return;
        }
        let _ = std::panic::catch_unwind(|| own(recording::finish_current));
    }
}
