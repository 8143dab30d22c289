//! A recording under way, and what comes out of it.
//!
//! With `assertion` the only part that sees both sides: it drives the recorder and hands finished
//! data to analysis and export.

mod builder;
mod collect;
mod outputs;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use builder::{Builder, IntoBytes};
use collect::Missed;
pub(crate) use collect::ledger_snapshot;
pub use outputs::{Report, Snapshot, output_dir};

use crate::error::Error;
use crate::record::guard::{self, Own};
use crate::record::{fork, recorder};
use crate::snapshot::{Device, MemoryStats, Settings};

/// A recording under way. Dropping it ends the recording.
///
/// One at a time in a process; one may follow another.
#[derive(Debug)]
#[must_use = "dropping a session ends its recording"]
pub struct Session {
    settings: Own<Settings>,
    began: Instant,
    started_unix_us: u64,
    /// What had been missed in this process before.
    missed_before: Missed,
}

/// Begins to record with the default options; [`builder`] has the others.
///
/// # Errors
/// If a session is under way already.
pub fn start() -> Result<Session, Error> {
    builder().start()
}

/// Options of a recording to come.
pub fn builder() -> Builder {
    Builder::default()
}

impl Session {
    fn begin(settings: &Settings) -> Result<Self, Error> {
        fork::watch();
        if recorder::was_forked() {
            return Err(Error::forked());
        }
        let _own = guard::own_work();
        let began = Instant::now();
        if !recorder::start(settings, began) {
            return Err(Error::already_recording());
        }
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            settings: Own::make(|| settings.clone()),
            began,
            started_unix_us: epoch.as_micros() as u64,
            missed_before: Missed::so_far(),
        })
    }

    /// What was recorded so far; the recording goes on. Resolves symbols: about a second for a
    /// program of candle's size, less when repeated.
    ///
    /// In a process that was forked off after the session began it is empty.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| collect::collect(self))
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _own = guard::own_work();
        recorder::stop();
    }
}

/// The counters of a device; zeros if it is not being recorded.
///
/// ```no_run
/// let session = memtrace::start()?;
/// let stats = memtrace::stats(memtrace::Device::Cpu);
/// println!("{} now, {} at most", stats.allocated_bytes.current, stats.allocated_bytes.peak);
/// # Ok::<(), memtrace::Error>(())
/// ```
pub fn stats(device: impl Into<Device>) -> MemoryStats {
    recorder::stats(device.into()).unwrap_or_default()
}

/// Sets the peaks in [`stats`] to the current values, as `torch.cuda.reset_peak_memory_stats` does.
/// The peak of the snapshot, with what was live at it, stays that of the whole recording.
pub fn reset_peak(device: impl Into<Device>) {
    recorder::reset_peak(device.into());
}

/// Is anything being recorded?
pub fn is_recording() -> bool {
    recorder::is_recording()
}
