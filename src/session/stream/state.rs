//! State of a streamed capture, and rollback to the last commit after a failed write.

use std::io;
use std::time::Duration;

use memtrace_core::capture::{Commit, Encoder};
use memtrace_core::snapshot::{Device, Health, LoadedObject, Mappings};

use super::file::StreamFile;
use super::parts::StreamParts;
use crate::record::uses::UseCursor;
use crate::record::{Cursor, DeviceCopy, thread};
use crate::session::mappings::MappingsReader;
use crate::session::missed::{self, RecordingStart, spans};
use crate::session::numbers::DenseStacks;
use crate::session::process::{host_memory, threads};
use crate::session::say;

/// If a flush takes longer than this for a device, it skips the remaining records.
const MOST_TIME: Duration = Duration::from_millis(200);
/// The same limit for the last flush.
const MOST_TIME_AT_END: Duration = Duration::from_millis(400);

/// How far a device's log has been written, and what the file has of the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogPosition {
    pub(super) device: Device,
    pub(super) cursor: Cursor,
    pub(super) uses: UseCursor,
    /// Records were skipped, so scope statistics no longer follow from the log.
    pub(super) skipped: bool,
    /// The file already has the device's total memory.
    pub(super) has_total: bool,
    pub(super) lost: Lost,
    /// How often the peak had been corrected when the newest lists of blocks were written.
    pub(super) corrections: u64,
}

impl LogPosition {
    /// Whether the lists of blocks must be written again, because those of the peak no longer follow from the records.
    pub(super) fn needs_lists(&self, copy: &DeviceCopy) -> bool {
        self.corrections < copy.ledger.peak_corrections
    }
}

/// What the device's ledger failed to record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) blocks: u64,
    pub(super) frees: u64,
    pub(super) scopes: u64,
}

#[derive(Debug)]
pub(in crate::session) struct CaptureStream {
    /// The file, or the part that is being written.
    pub(super) file: StreamFile,
    /// The stream's parts; `None` if the stream is one file.
    pub(super) parts: Option<StreamParts>,
    pub(super) encoder: Encoder<Vec<u8>>,
    pub(super) devices: Vec<LogPosition>,
    pub(super) numbers: DenseStacks,
    pub(super) contexts: usize,
    /// How many names of kernels are written.
    pub(super) kernels: usize,
    pub(super) objects: Vec<LoadedObject>,
    pub(super) threads: usize,
    pub(super) mappings: MappingsReader,
    /// This flush has already read how much memory the process has.
    pub(super) memory_read: bool,
    pub(super) committed: Committed,
    /// The last flush failed, and this was reported.
    pub(super) failing: bool,
    pub(super) closed: bool,
}

/// The state at the last commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Committed {
    pub(super) length: u64,
    pub(super) devices: Vec<LogPosition>,
    pub(super) stacks: usize,
    pub(super) addresses: usize,
    pub(super) contexts: usize,
    pub(super) kernels: usize,
    pub(super) objects: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Flush {
    pub(super) since: RecordingStart,
    pub(super) last: bool,
}

impl Flush {
    /// How long one device may take.
    pub(super) fn most_time(&self) -> Duration {
        if self.last { MOST_TIME_AT_END } else { MOST_TIME }
    }
}

impl CaptureStream {
    pub(super) fn commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.encode_commit(flush)?;
        self.write_out()
    }

    pub(super) fn encode_commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.append_threads(flush.last)?;
        let mut health = Health { spans: spans(), ..missed::since(&flush.since.missed) };
        for LogPosition { lost, .. } in &self.devices {
            health.lost_blocks += lost.blocks;
            health.missed_frees += lost.frees;
            health.lost_scopes += lost.scopes;
        }
        let duration_ns = flush.since.began.elapsed().as_nanos() as u64;
        if !std::mem::replace(&mut self.memory_read, true) {
            let mut memory = host_memory(duration_ns);
            if let Some(parts) = &mut self.parts {
                memory = memory.map(|memory| memory.after(parts.memory));
                parts.memory = memory;
            }
            self.encoder.host_memory(memory)?;
            let mappings = memory.and_then(|memory| self.mappings.grown(memory.resident, &self.objects, duration_ns));
            if let (Some(parts), Some(mappings)) = (&mut self.parts, &mappings) {
                parts.mappings = Some(mappings.clone().after(parts.mappings.take()));
            }
            mappings.into_iter().try_for_each(|mappings| self.encode_mappings(mappings))?;
        }
        self.encoder.commit(&Commit { duration_ns, health })
    }

    pub(super) fn encode_mappings(&mut self, mut mappings: Mappings) -> io::Result<()> {
        self.numbers.renumber_mappings(&mut mappings);
        self.append_tables()?;
        self.encoder.mappings(&mappings)
    }

    /// Appends mappings if resident memory has grown. Otherwise a program that only reads a mapped file would never
    /// have them written, because it makes no records.
    pub(super) fn append_mappings(&mut self, flush: &Flush) -> io::Result<()> {
        let duration_ns = flush.since.began.elapsed().as_nanos() as u64;
        let has_grown = || host_memory(duration_ns).is_some_and(|memory| self.mappings.has_grown(memory.resident));
        if self.memory_read || !has_grown() { Ok(()) } else { self.commit(flush) }
    }

    /// Writes everything up to the commit at once. So if it does not fit, no part of it stays in the file.
    pub(super) fn write_out(&mut self) -> io::Result<()> {
        if let Some(parts) = &mut self.parts {
            parts.make_room(self.file.length(), self.encoder.out().len() as u64)?;
        }
        self.file.append(self.encoder.out())?;
        self.note_commit();
        Ok(())
    }

    pub(super) fn note_commit(&mut self) {
        self.committed = Committed {
            length: self.file.length(),
            devices: self.devices.clone(),
            stacks: self.numbers.stacks.count(),
            addresses: self.numbers.addresses.count(),
            contexts: self.contexts,
            kernels: self.kernels,
            objects: self.objects.len(),
        };
    }

    /// Returns to the last commit after a failed write. The next flush tries again, because the disk may be full only
    /// for a while.
    pub(super) fn go_back(&mut self, error: &io::Error) {
        self.roll_back();
        if self.parts.as_ref().is_none_or(|parts| !parts.is_full) {
            self.say_once(error);
        }
    }

    /// Returns to the last commit.
    pub(super) fn roll_back(&mut self) {
        self.file.truncate(self.committed.length);
        self.encoder.out().clear();
        self.devices.clone_from(&self.committed.devices);
        self.numbers.stacks.truncate(self.committed.stacks);
        self.numbers.addresses.truncate(self.committed.addresses);
        self.objects.truncate(self.committed.objects);
        self.contexts = self.committed.contexts;
        self.kernels = self.committed.kernels;
        self.threads = 0;
    }

    pub(super) fn say_once(&mut self, error: &io::Error) {
        if !self.failing {
            let path = self.file.path().display();
            say(&format!(
                "cannot write {path}: {error}; everything written before is valid, and memtrace keeps trying"
            ));
        }
        self.failing = true;
    }

    pub(super) fn append_threads(&mut self, last: bool) -> io::Result<()> {
        // Reading the names opens a file for each thread, so this is done only if there are new threads.
        let seen = thread::seen().count();
        if last || seen > self.threads {
            self.threads = seen;
            self.encoder.threads(&threads())?;
        }
        Ok(())
    }
}
