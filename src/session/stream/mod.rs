//! Streamed capture: an append-only file that grows while the program runs, and survives any end of it.
//!
//! ```text
//!  ring buffer of a ledger ──(device lock, 8,192 records at a time)──► CaptureStream: stacks and addresses renumbered
//!         ▲                                                                  │ capture::Encoder, one buffer
//!         │ recorded threads take only that lock and never wait for the disk ▼
//!         └────────────────────────────────────────────────  write, then a commit, about ten times a second
//! ```
//!
//! **Commits.** A commit is a chunk of the file, and readers trust everything before the last whole one. A killed
//! program therefore leaves everything up to its last commit. A flush notes once where each device's log ends and
//! appends up to there, whatever the program does meanwhile. It commits at the end and wherever the ledger kept a
//! checkpoint of its counters (every 4,096 allocs, `record/ledger/part.rs`). On an almost full disk, what fits is kept;
//! after a failed write the stream returns to its last commit and tries again with the next flush.
//!
//! **Skipped records.** Records that are overwritten before they are read, or take longer than 0.2 s to write, are
//! skipped. The file then states how many there were, what was live afterwards and at the peak, and continues from
//! there. The reader (`capture/gaps.rs` of `memtrace-core`) adds a free at the start of the gap for each block that is
//! gone after it, and an alloc for each new one, so that every sum holds. `DeviceSnapshot::gaps` lists the gaps.
//!
//! **Derived data.** Live blocks, the peak's blocks and scope statistics follow from the records, so they are written
//! only by the last flush and computed by the reader otherwise. A closed capture therefore equals the session's
//! snapshot (`tests/recording/captures.rs` compares the two for random programs).

mod device;
mod file;
mod open_file;
mod state;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use memtrace_core::capture::{Commit, Driver, Encoder};
use memtrace_core::snapshot::{Device, Process, Settings};

use self::file::StreamFile;
pub(super) use self::state::CaptureStream;
use self::state::{Committed, Flush};
use super::mappings::MappingsReader;
use super::missed::RecordingStart;
use super::numbers::DenseStacks;
use super::process::this_process;
use crate::error::Error;
use crate::record::recorder;
use crate::symbol;

/// Time between two flushes.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

impl CaptureStream {
    /// Creates the file.
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
            numbers: DenseStacks::default(),
            contexts: 1,
            kernels: 0,
            objects: Vec::new(),
            threads: 0,
            mappings: MappingsReader::new(settings.min_size),
            memory_read: false,
            committed: Committed { contexts: 1, ..Committed::default() },
            failing: false,
            closed: false,
        };
        let process = Process { started_unix_us, ..this_process() };
        stream.begin(&process, settings).map_err(output)?;
        Ok(stream)
    }

    /// The file's absolute path.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    fn begin(&mut self, process: &Process, settings: &Settings) -> io::Result<()> {
        self.encoder.process(process)?;
        self.encoder.settings(settings)?;
        self.objects = symbol::loaded_objects();
        self.encoder.objects(&self.objects)?;
        self.encoder.commit(&Commit::default())?;
        self.write_out()
    }

    /// Appends new records; false once the stream is closed. After an error the file ends at its last commit.
    pub(super) fn flush(&mut self, since: RecordingStart) -> bool {
        if self.closed {
            return false;
        }
        let flush = Flush { since, last: false };
        self.memory_read = false;
        let appended = recorder::devices().try_for_each(|device| self.append(device, &flush));
        match appended.and_then(|()| self.append_mappings(&flush)) {
            Ok(()) => self.failing = false,
            Err(error) => self.go_back(&error),
        }
        true
    }

    /// Appends the rest and the end mark.
    pub(super) fn close(&mut self, since: RecordingStart, driver: impl Fn(Device) -> Driver) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.finish(since, driver).map_err(|error| {
            self.file.truncate(self.committed.length);
            Error::output(self.file.path(), error)
        })
    }

    fn finish(&mut self, since: RecordingStart, driver: impl Fn(Device) -> Driver) -> io::Result<()> {
        let flush = Flush { since, last: true };
        recorder::devices().try_for_each(|device| self.append(device, &flush))?;
        let devices: Vec<Device> = self.devices.iter().map(|position| position.device).collect();
        devices.into_iter().try_for_each(|device| self.encoder.driver(device, driver(device)))?;
        self.memory_read = false;
        self.encode_commit(&flush)?;
        self.encoder.end()?;
        self.write_out()?;
        self.file.end()
    }
}
