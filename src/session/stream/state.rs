//! What a stream has appended, and what of it stands in the file for good.

use std::io;
use std::time::Duration;

use super::file::StreamFile;
use super::numbers::Numbers;
use crate::capture::{Commit, Encoder};
use crate::record::{Cursor, thread};
use crate::session::missed;
use crate::session::missed::spans;
use crate::session::process::threads;
use crate::session::say;
use crate::session::since::Since;
use crate::snapshot::{Device, Health, LoadedObject, StackId};

/// A flush that takes longer for a device skips the rest.
const MOST_TIME: Duration = Duration::from_millis(200);
/// The same for the last one: there is no later one that would have less to do.
const MOST_TIME_AT_END: Duration = Duration::from_millis(400);

/// How far a device's log has been written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) cursor: Cursor,
    /// Something was skipped: scopes no longer follow from the log.
    pub(super) skipped: bool,
    pub(super) lost: Lost,
}

/// What the device's ledger had to leave out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) blocks: u64,
    pub(super) frees: u64,
    pub(super) scopes: u64,
}

#[derive(Debug)]
pub(in crate::session) struct Stream {
    pub(super) file: StreamFile,
    pub(super) encoder: Encoder<Vec<u8>>,
    pub(super) devices: Vec<Place>,
    pub(super) stacks: Numbers<StackId>,
    pub(super) addresses: Numbers<u64>,
    pub(super) contexts: usize,
    pub(super) modules: Vec<LoadedObject>,
    pub(super) threads: usize,
    /// What stands in the file for good.
    pub(super) committed: Committed,
    /// The last flush failed; said once.
    pub(super) failing: bool,
    pub(super) closed: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Committed {
    pub(super) length: u64,
    pub(super) devices: Vec<Place>,
    pub(super) stacks: usize,
    pub(super) addresses: usize,
    pub(super) contexts: usize,
    pub(super) modules: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Flush {
    pub(super) since: Since,
    pub(super) last: bool,
}

impl Flush {
    /// How long one device may take.
    pub(super) fn most_time(&self) -> Duration {
        if self.last { MOST_TIME_AT_END } else { MOST_TIME }
    }
}

impl Stream {
    /// What was appended counts from here on.
    pub(super) fn commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.encode_commit(flush)?;
        self.write_out()
    }

    pub(super) fn encode_commit(&mut self, flush: &Flush) -> io::Result<()> {
        self.append_threads(flush.last)?;
        let mut health = Health { spans: spans(), ..missed::since(&flush.since.missed) };
        for place in &self.devices {
            health.lost_blocks += place.lost.blocks;
            health.missed_frees += place.lost.frees;
            health.lost_scopes += place.lost.scopes;
        }
        let duration_ns = flush.since.began.elapsed().as_nanos() as u64;
        self.encoder.commit(&Commit { duration_ns, health })
    }

    /// Everything up to a commit, at once: should it not fit, nothing of it stays.
    pub(super) fn write_out(&mut self) -> io::Result<()> {
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
    pub(super) fn go_back(&mut self, error: &io::Error) {
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

    pub(super) fn append_threads(&mut self, last: bool) -> io::Result<()> {
        // Their names lie in one file each: read only when there are more of them.
        let seen = thread::seen().count();
        if last || seen > self.threads {
            self.threads = seen;
            self.encoder.threads(&threads())?;
        }
        Ok(())
    }
}
