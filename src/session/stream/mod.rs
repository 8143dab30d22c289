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

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use self::device::Place;
use self::file::StreamFile;
use self::numbers::Numbers;
use super::collect::spans;
use super::process::{this_process, threads};
use super::recording::Since;
use super::say;
use crate::capture::{Commit, Driver, Encoder};
use crate::error::Error;
use crate::record::{recorder, thread};
use crate::snapshot::{Device, Health, Module, Process, Settings, StackId};
use crate::symbol;

/// From one look at the log to the next.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// A flush that takes longer for a device skips the rest.
const MOST_TIME: Duration = Duration::from_millis(200);
/// The same for the last one: there is no later one that would have less to do.
const MOST_TIME_AT_END: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct Stream {
    file: StreamFile,
    encoder: Encoder<Vec<u8>>,
    devices: Vec<Place>,
    stacks: Numbers<StackId>,
    addresses: Numbers<u64>,
    contexts: usize,
    modules: Vec<Module>,
    threads: usize,
    /// What stands in the file for good.
    committed: Committed,
    /// The last flush failed; said once.
    failing: bool,
    closed: bool,
}

#[derive(Clone, Debug, Default)]
struct Committed {
    length: u64,
    devices: Vec<Place>,
    stacks: usize,
    addresses: usize,
    contexts: usize,
    modules: usize,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    since: Since,
    last: bool,
}

impl Flush {
    /// How long one device may take.
    fn most_time(&self) -> Duration {
        if self.last { MOST_TIME_AT_END } else { MOST_TIME }
    }
}

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

    /// What was appended counts from here on.
    fn commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.encode_commit(flush)?;
        self.write_out()
    }

    fn encode_commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.append_threads(flush.last)?;
        let mut health = Health { spans: spans(), ..flush.since.missed.since() };
        for place in &self.devices {
            health.lost_blocks += place.lost.blocks;
            health.missed_frees += place.lost.frees;
            health.lost_scopes += place.lost.scopes;
        }
        let duration_ns = flush.since.began.elapsed().as_nanos() as u64;
        self.encoder.commit(&Commit { duration_ns, health })
    }

    /// Everything up to a commit, at once: should it not fit, nothing of it stays.
    fn write_out(&mut self) -> io::Result<()> {
        self.file.append(self.encoder.out())?;
        self.encoder.out().clear();
        self.committed = Committed {
            length: self.file.length(),
            devices: self.devices.clone(),
            stacks: self.stacks.count(),
            addresses: self.addresses.count(),
            contexts: self.contexts,
            modules: self.modules.len(),
        };
        Ok(())
    }

    /// Takes back what was not committed: the disk is full, perhaps for a while.
    fn go_back(&mut self, error: &io::Error) {
        self.file.go_back(self.committed.length);
        self.encoder.out().clear();
        self.devices.clone_from(&self.committed.devices);
        self.stacks.go_back(self.committed.stacks);
        self.addresses.go_back(self.committed.addresses);
        self.modules.truncate(self.committed.modules);
        (self.contexts, self.threads) = (self.committed.contexts, 0);
        if !self.failing {
            let path = self.file.path().display();
            say(&format!("cannot write {path}: {error}; what it holds so far is good, and memtrace goes on trying"));
        }
        self.failing = true;
    }

    fn append_threads(&mut self, last: bool) -> io::Result<()> {
        // Their names lie in one file each: read only when there are more of them.
        let seen = thread::seen().count();
        if last || seen > self.threads {
            self.threads = seen;
            self.encoder.threads(&threads())?;
        }
        Ok(())
    }
}
