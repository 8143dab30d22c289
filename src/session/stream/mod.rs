//! Streamed capture: an append-only file that grows while the program runs, and survives any end of it.
//!
//! ```text
//!  ring buffer of a ledger ──(device lock, at most 12,288 records)────► CaptureStream: stacks and addresses renumbered
//!         ▲                                                                  │ capture::Encoder, one buffer
//!         │ recorded threads take only that lock and never wait for the disk ▼
//!         └────────────────────────────────────────────────  write, then a commit, about ten times a second
//! ```
//!
//! **Commits.** A commit is a chunk of the file. Readers trust everything before the last whole commit, so a killed
//! program leaves everything up to its last commit. A flush notes where a device's log ends, and appends the records up
//! to there, whatever the program does meanwhile. It commits at that end. Before that, it commits after each portion of
//! records that ends at a checkpoint, which is a copy of the counters that the ledger makes every 4,096 allocs
//! (`record/ledger/part.rs`). So on an almost full disk, the portions that fit are kept. After a failed write the
//! stream returns to its last commit, and the next flush tries again.
//!
//! **Skipped records.** The stream skips records that were overwritten before it read them, or that are left when a
//! flush has written a device's records for 0.2 s. The file then says how many there were, and what was live afterwards
//! and at the peak; the stream continues from there. For each block that is gone after the gap, the reader
//! (`capture/gaps.rs` of `memtrace-core`) adds a free at the start of the gap. It adds an alloc for each new block, so
//! that every sum is right. `DeviceSnapshot::gaps` lists the gaps.
//!
//! **Parts.** With a budget the stream consists of several files (`parts.rs`). The next part begins (`rotate.rs`) with
//! what the ledgers know about the whole run. Its first commit is written when the part is created. Only then may the
//! part before it be deleted, so a kill at any moment leaves a complete state.
//!
//! **Derived data.** Live blocks, the peak's blocks and scope statistics follow from the records. So they are written
//! only by the last flush, by a flush that skips records, and when a part begins. Otherwise the reader computes them. The
//! lists of blocks are also written if the peak was corrected, because its blocks then do not follow from the records. A
//! closed capture therefore equals the session's snapshot (`tests/recording/captures.rs` compares the two for random
//! programs).

mod device;
mod file;
mod older;
mod open_file;
mod parts;
mod rotate;
mod state;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use memtrace_core::capture::{Commit, Driver, Encoder};
use memtrace_core::snapshot::{Device, Process, Settings};

use self::file::StreamFile;
pub(super) use self::parts::StreamLimits;
use self::parts::StreamParts;
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
    /// Creates the file, or with a budget the first part and the file that names the stream.
    pub(super) fn create(
        path: &Path,
        settings: &Settings,
        limits: StreamLimits,
        started_unix_us: u64,
    ) -> Result<Self, Error> {
        let output = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => memtrace_core::Error::exists(path).into(),
            _ => Error::output(path, error),
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| Error::output(path, error))?;
        }
        let process = Process { started_unix_us, ..this_process() };
        let made = match limits {
            StreamLimits { bytes: None, time: None } => Self::whole(path, &process, settings),
            limits => Self::in_parts(path, limits, process, settings),
        };
        made.map_err(output)
    }

    fn whole(path: &Path, process: &Process, settings: &Settings) -> io::Result<Self> {
        let mut stream = Self::of(StreamFile::create(path)?, None, settings)?;
        // A file without a commit is no recording, so it is removed.
        stream.write_first(process, settings).inspect_err(|_| _ = stream.file.remove())?;
        Ok(stream)
    }

    fn write_first(&mut self, process: &Process, settings: &Settings) -> io::Result<()> {
        self.encoder.process(process)?;
        self.encoder.settings(settings)?;
        self.encoder.objects(&self.objects)?;
        self.encoder.commit(&Commit::default())?;
        self.write_out()
    }

    fn in_parts(path: &Path, limits: StreamLimits, process: Process, settings: &Settings) -> io::Result<Self> {
        let mut parts = StreamParts::create(path, limits, process, settings.clone())?;
        let mut beginning = Encoder::begin(Vec::new())?;
        let objects = symbol::loaded_objects();
        beginning.part(parts.next())?;
        beginning.process(&parts.process)?;
        beginning.settings(settings)?;
        beginning.objects(&objects)?;
        beginning.commit(&Commit::default())?;
        let first = parts.begin(beginning.out(), 0).inspect_err(|_| parts.remove())?;
        let mut stream = Self::of(first, Some(parts), settings)?;
        stream.objects = objects;
        stream.encoder.out().clear();
        stream.note_commit();
        Ok(stream)
    }

    fn of(file: StreamFile, parts: Option<StreamParts>, settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            file,
            parts,
            encoder: Encoder::begin(Vec::new())?,
            devices: Vec::new(),
            numbers: DenseStacks::default(),
            contexts: 1,
            kernels: 0,
            objects: symbol::loaded_objects(),
            threads: 0,
            mappings: MappingsReader::new(settings.min_size),
            memory_read: false,
            committed: Committed { contexts: 1, ..Committed::default() },
            failing: false,
            closed: false,
        })
    }

    /// The stream's absolute path.
    pub(super) fn path(&self) -> &Path {
        self.parts.as_ref().map_or(self.file.path(), StreamParts::path)
    }

    /// Appends new records; false once the stream is closed. After an error the file ends at its last commit.
    pub(super) fn flush(&mut self, since: RecordingStart) -> bool {
        if self.closed {
            return false;
        }
        let flush = Flush { since, last: false };
        self.memory_read = false;
        let mut outcome = if self.is_due() { Ok(()) } else { self.append_all(&flush) };
        if let Err(error) = &outcome {
            self.go_back(error);
        }
        if self.is_due() {
            outcome = self.rotate(&flush);
            if let Err(error) = &outcome {
                self.say_once(error);
            }
        }
        self.failing &= outcome.is_err();
        true
    }

    fn is_due(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_due(self.file.length()))
    }

    fn append_all(&mut self, flush: &Flush) -> io::Result<()> {
        recorder::devices().try_for_each(|device| self.append(device, flush))?;
        self.append_mappings(flush)
    }

    /// Appends the remaining records, the state at the end, and the end mark.
    pub(super) fn close(&mut self, since: RecordingStart, driver: impl Fn(Device) -> Driver) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        let flush = Flush { since, last: true };
        let mut finished = self.finish(&flush, &driver);
        if finished.is_err() && self.parts.as_ref().is_some_and(|parts| parts.is_full) {
            // This part has no room for the state at the end. The next part has it anyway, because each part begins
            // with the current state.
            self.roll_back();
            finished = self.rotate(&flush).and_then(|()| self.finish_last(&flush, &driver));
        }
        finished.map_err(|error| {
            self.file.truncate(self.committed.length);
            Error::output(self.file.path(), error)
        })
    }

    /// Like [`finish`](Self::finish), but first marks the part as the last one, which may fill the whole budget.
    fn finish_last(&mut self, flush: &Flush, driver: &impl Fn(Device) -> Driver) -> io::Result<()> {
        self.parts.iter_mut().for_each(|parts| parts.is_last = true);
        self.finish(flush, driver)
    }

    fn finish(&mut self, flush: &Flush, driver: &impl Fn(Device) -> Driver) -> io::Result<()> {
        recorder::devices().try_for_each(|device| self.append(device, flush))?;
        let devices: Vec<Device> = self.devices.iter().map(|position| position.device).collect();
        devices.into_iter().try_for_each(|device| self.encoder.driver(device, driver(device)))?;
        self.memory_read = false;
        self.encode_commit(flush)?;
        self.encoder.end()?;
        self.write_out()?;
        self.file.end()?;
        self.parts.as_mut().map_or(Ok(()), StreamParts::end)
    }
}
