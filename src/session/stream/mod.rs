//! A capture that grows while the program runs, so that what was recorded survives its end, whatever that is. A thread
//! of memtrace's own appends; recorded threads never wait for the disk, only for the short time in which a part of the
//! log is copied.
//!
//! A flush looks once where each device's log ends, and appends up to there, however much the program goes on doing
//! meanwhile. Each portion is committed by itself. What could not be read in time is skipped: then the file says how
//! much is missing, what was live behind it, and goes on from there.

mod device;
mod file;
mod numbers;
mod state;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use self::file::StreamFile;
use self::numbers::Numbers;
pub(super) use self::state::Stream;
use self::state::{Committed, Flush};
use super::process::this_process;
use super::since::Since;
use crate::capture::{Commit, Driver, Encoder};
use crate::error::Error;
use crate::record::recorder;
use crate::snapshot::{Device, Process, Settings};
use crate::symbol;

/// From one look at the log to the next.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
impl Stream {
    /// Makes a new file.
    pub(super) fn create(path: &Path, settings: &Settings, started_unix_us: u64) -> Result<Self, Error> {
        let output = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => memtrace_core::Error::exists(path).into(),
            _ => Error::output(path, error),
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| Error::output(path, error))?;
        }
        let mut stream = Self {
            file: StreamFile::create(path).map_err(output)?,
            encoder: Encoder::begin(Vec::new()).map_err(output)?,
            devices: Vec::new(),
            stacks: Numbers::new(),
            addresses: Numbers::new(),
            contexts: 1,
            modules: Vec::new(),
            threads: 0,
            committed: Committed { contexts: 1, ..Committed::default() },
            failing: false,
            closed: false,
        };
        let process = Process { started_unix_us, ..this_process() };
        stream.begin(&process, settings).map_err(output)?;
        Ok(stream)
    }

    fn begin(&mut self, process: &Process, settings: &Settings) -> io::Result<()> {
        self.encoder.process(process)?;
        self.encoder.settings(settings)?;
        self.modules = symbol::loaded_modules();
        self.encoder.modules(&self.modules)?;
        self.encoder.commit(&Commit::default())?;
        self.write_out()
    }

    /// Appends what is new; false once it is closed. After a failure the file is as after the last commit, and the
    /// next flush begins there.
    pub(super) fn flush(&mut self, since: Since) -> bool {
        if self.closed {
            return false;
        }
        let flush = Flush { since, last: false };
        match recorder::devices().try_for_each(|device| self.append(device, &flush)) {
            Ok(()) => self.failing = false,
            Err(error) => self.go_back(&error),
        }
        true
    }

    /// Appends the rest and the end mark.
    pub(super) fn close(&mut self, since: Since, driver: impl Fn(Device) -> Driver) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.finish(since, driver).map_err(|error| {
            self.file.go_back(self.committed.length);
            Error::output(self.file.path(), error)
        })
    }

    fn finish(&mut self, since: Since, driver: impl Fn(Device) -> Driver) -> io::Result<()> {
        let flush = Flush { since, last: true };
        recorder::devices().try_for_each(|device| self.append(device, &flush))?;
        let devices: Vec<Device> = self.devices.iter().map(|place| place.device).collect();
        devices.into_iter().try_for_each(|device| self.encoder.driver(device, driver(device)))?;
        self.encode_commit(&flush)?;
        self.encoder.end()?;
        self.write_out()?;
        self.file.end()
    }
}
