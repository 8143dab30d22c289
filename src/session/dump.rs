//! Snapshots that are written without being called for: at the end, on a panic, on a signal, when an
//! allocation fails.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::Ordering;

use super::collect::Copied;
use super::output;
use super::outputs::{LOST, Snapshot};
use super::process::{default_name, expand, this_process};
use super::recording::{self, Recording, Shared};
use super::{refusal, say};
use crate::error::Error;
use crate::export::Format;
use crate::export::file::{self, Place};
use crate::record::{guard, heap};
use crate::units::Bytes;
use crate::write_errors;

/// Which of them, and where to.
#[derive(Clone, Debug, Default)]
pub(super) struct Dumps {
    /// Pattern of the file's path; its extension says the format.
    pub(super) path: Option<String>,
    /// Where relative paths begin, wherever the program goes.
    pub(super) folder: PathBuf,
    pub(super) at_end: bool,
    pub(super) on_panic: bool,
    /// Where nobody said anything, an allocation that fails is explained and no file is written.
    pub(super) on_oom: Option<bool>,
    pub(super) signal: Option<i32>,
}

/// A snapshot that nobody called for.
#[derive(Debug)]
pub(super) struct Dumped {
    pub(super) snapshot: Snapshot,
    /// There is a file with it.
    pub(super) is_written: bool,
}

impl Dumps {
    /// Does what has to be done once per process, but for panics and signals; the path must name a format.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        if let Some(path) = &self.path {
            Format::of(Path::new(path))?;
            let _limit = write_errors::errors_only();
            file::can_be_made(&self.folder.join(expand(path, &this_process())))
                .map_err(|error| error.and("nothing is recorded"))?;
        }
        if self.on_oom != Some(false) {
            heap::on_refusal(refusal::dump_out_of_memory);
        }
        Ok(())
    }

    /// Who says where to and not when means the end.
    pub(super) fn settle(&mut self) {
        let at_a_moment = self.at_end || self.on_panic || self.signal.is_some() || self.on_oom == Some(true);
        self.at_end |= self.path.is_some() && !at_a_moment;
    }

    /// Writes a snapshot beside any that are there already, and says so.
    pub(super) fn write(&self, recording: &Recording, reason: &str) -> Option<Dumped> {
        let _own = guard::own_work();
        self.write_it(recording.snapshot(), reason)
    }

    fn write_it(&self, snapshot: Snapshot, reason: &str) -> Option<Dumped> {
        let path = self.folder.join(match &self.path {
            Some(pattern) => expand(pattern, &this_process()),
            None => output::base_dir(&self.folder).join(default_name(&this_process(), "pickle")),
        });
        if snapshot.devices.is_empty() {
            say(&format!("no snapshot {reason}: nothing is being recorded"));
            return None;
        }
        let peak = snapshot.devices.iter().map(|device| device.peak.total()).max().unwrap_or_default();
        let written = output::beside(&path, |path| snapshot.write_to(Place::New(path)));
        let is_written = written.is_ok();
        if self.path.is_none() {
            let process = this_process();
            let names = format!("{}_{}_", process.host, process.program);
            output::prune(&path, |name| name.starts_with(&names) && name.ends_with(".pickle"));
        }
        match written {
            Ok(path) => say(&format!("wrote {} {reason}; {} at the peak", path.display(), Bytes(peak))),
            Err(error) => say(&error.and(LOST).to_string()),
        }
        Some(Dumped { snapshot, is_written })
    }
}

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

/// Only the first panic of a recording: a server may catch thousands.
fn copy_at_panic() -> Option<AtPanic> {
    let recording = current().filter(|recording| recording.dumps.on_panic)?;
    let _own = guard::own_work();
    let is_first = !recording.panicked.swap(true, Ordering::AcqRel);
    is_first.then(|| AtPanic { copied: Copied::of(&recording), recording })
}

impl AtPanic {
    fn write(self) {
        let _own = guard::own_work();
        let Self { recording, copied } = self;
        recording.flush();
        recording.dumps.write_it(Snapshot::take(|| copied.finish()), "after a panic");
    }
}

/// At the process's end, finishes what is under way. Registered with the C library, once.
pub(super) fn at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(exit::register);
}

mod exit {
    #![expect(unsafe_code, reason = "`atexit` is a C function")]

    use super::{guard, recording};

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
        let _own = guard::own_work();
        let _ = std::panic::catch_unwind(recording::finish_current);
    }
}
