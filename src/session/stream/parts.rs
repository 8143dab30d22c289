//! The files of a stream with a budget: the file that names it, its parts, and which of them are deleted when the
//! budget is used up.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use memtrace_core::capture::{self, StreamPart, part_path};
use memtrace_core::snapshot::{HostMemory, Mappings, Process, Settings};

use super::file::StreamFile;
use super::older::OlderTimes;

/// The most older parts that are kept, because each has an open file.
const MOST_PARTS: usize = 16;

/// Time between two attempts to begin a part.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// What a stream keeps. Without limits it keeps everything, in one file.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::session) struct StreamLimits {
    pub(in crate::session) bytes: Option<u64>,
    /// How long a part is kept after its end.
    pub(in crate::session) time: Option<Duration>,
}

/// A part whose successor has begun.
#[derive(Debug)]
struct OlderPart {
    file: StreamFile,
    ended: Instant,
}

/// The data of a stream with a budget, apart from the part that is being written.
#[derive(Debug)]
pub(super) struct StreamParts {
    /// The file that names the stream, which is kept.
    name: StreamFile,
    run: u64,
    budget: u64,
    time: Option<Duration>,
    began: Instant,
    /// The number of the part that is being written.
    number: u64,
    /// The size in bytes of that part's beginning, the state with which it starts.
    beginning: u64,
    /// The parts before that part, oldest first. Their files stay open, so that no other file can get the identity
    /// (device and inode) of one of them.
    older: VecDeque<OlderPart>,
    /// The last attempt to write found no room in the budget.
    pub(super) is_full: bool,
    /// The recording ends. No part follows the one that is being written, so it may fill the budget.
    pub(super) is_last: bool,
    not_before: Option<Instant>,
    pub(super) process: Process,
    pub(super) settings: Settings,
    /// Figures of the whole run, here and in `mappings`, which each part gets.
    pub(super) memory: Option<HostMemory>,
    pub(super) mappings: Option<Mappings>,
    pub(super) times: OlderTimes,
}

impl StreamParts {
    /// Creates the file that names the stream.
    pub(super) fn create(path: &Path, limits: StreamLimits, process: Process, settings: Settings) -> io::Result<Self> {
        let budget = limits.bytes.unwrap_or(u64::MAX);
        let mut name = StreamFile::create(path)?;
        let run = RandomState::new().build_hasher().finish();
        if let Err(error) = name.append(&mut capture::stream_name(run)?) {
            name.remove();
            return Err(error);
        }
        Ok(Self {
            name,
            run,
            budget,
            time: limits.time,
            began: Instant::now(),
            number: 0,
            beginning: 0,
            older: VecDeque::new(),
            is_full: false,
            is_last: false,
            not_before: None,
            process,
            settings,
            memory: None,
            mappings: None,
            times: OlderTimes::new(budget, MOST_PARTS),
        })
    }

    /// The stream's path.
    pub(super) fn path(&self) -> &Path {
        self.name.path()
    }

    pub(super) fn next(&self) -> StreamPart {
        StreamPart { run: self.run, number: self.number + 1 }
    }

    /// Whether the next part is due: this part is full, has lasted an eighth of the time limit, or takes an eighth of
    /// the budget. A part with a large beginning may instead take twice the size of its beginning, but at most half of
    /// the budget.
    pub(super) fn is_due(&self, length: u64) -> bool {
        let enough = (self.budget / 8).max((2 * self.beginning).min(self.budget / 2));
        let is_old = self.time.is_some_and(|time| self.began.elapsed() >= time / 8);
        (length >= enough || self.is_full || is_old) && self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    pub(super) fn wait(&mut self) {
        self.not_before = Some(Instant::now() + BETWEEN_ATTEMPTS);
    }

    /// Makes room for `more` bytes of the part that is being written, which has `length` bytes.
    pub(super) fn make_room(&mut self, length: u64, more: u64) -> io::Result<()> {
        let most = if self.is_last { self.budget } else { self.budget / 2 };
        self.is_full = length + more > most || !self.delete_for(length + more)?;
        if self.is_full { Err(self.full(more)) } else { Ok(()) }
    }

    /// Writes the beginning of the next part. `current` is the length of the part that is being written.
    pub(super) fn begin(&mut self, beginning: &mut Vec<u8>, current: u64) -> io::Result<StreamFile> {
        let length = beginning.len() as u64;
        if length > self.budget / 2 || !self.delete_for(current + length)? {
            return Err(self.full(length));
        }
        let path = part_path(self.name.path(), self.number + 1);
        let mut file = StreamFile::create(&path).map_err(|error| {
            // Somebody else's file has this name, so the next attempt takes the next number.
            self.number += u64::from(error.kind() == io::ErrorKind::AlreadyExists);
            io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display()))
        })?;
        if let Err(error) = file.append(beginning) {
            file.remove();
            return Err(error);
        }
        self.number += 1;
        self.beginning = length;
        (self.is_full, self.not_before, self.began) = (false, None, Instant::now());
        Ok(file)
    }

    /// Adds a part whose successor has begun to the older ones. Deletes the oldest if there are too many, or if they
    /// are too old.
    pub(super) fn keep(&mut self, part: StreamFile) {
        self.older.push_back(OlderPart { file: part, ended: Instant::now() });
        let is_old = |part: &OlderPart| self.time.is_some_and(|time| part.ended.elapsed() > time);
        let goes = |older: &VecDeque<OlderPart>| older.len() >= MOST_PARTS || older.front().is_some_and(is_old);
        // A part that cannot be deleted stays in the list, because its bytes count.
        while goes(&self.older) && self.older.front().is_some_and(|part| part.file.remove()) {
            self.older.pop_front();
        }
    }

    /// Deletes the oldest parts until the other older parts and `bytes` fit into the budget. False if `bytes` do not
    /// fit even without older parts.
    fn delete_for(&mut self, bytes: u64) -> io::Result<bool> {
        while self.older_bytes() + bytes > self.budget {
            let Some(oldest) = self.older.pop_front() else { return Ok(false) };
            if !oldest.file.remove() {
                self.older.push_front(oldest);
                return Err(io::Error::other("an older part cannot be deleted"));
            }
        }
        Ok(true)
    }

    /// Bytes of all files except the part that is being written, including the end mark that will be written to the
    /// file that names the stream.
    fn older_bytes(&self) -> u64 {
        let end = capture::end_mark().len() as u64;
        self.name.length() + end + self.older.iter().map(|part| part.file.length()).sum::<u64>()
    }

    fn full(&self, bytes: u64) -> io::Error {
        let message = format!("the stream's budget of {} bytes has no room for {bytes} more", self.budget);
        io::Error::new(io::ErrorKind::StorageFull, message)
    }

    /// Writes the end mark to the file that names the stream.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.name.append(&mut capture::end_mark())?;
        self.name.end()
    }

    /// Removes the file that names the stream, because there are no parts.
    pub(super) fn remove(&self) {
        self.name.remove();
    }
}
