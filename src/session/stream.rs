//! A capture that grows while the program runs, so that what was recorded survives its end, whatever
//! that is. A thread of memtrace's own appends; recorded threads never wait for the disk, only for the
//! short time in which a part of the log is copied.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hash;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::collect::spans;
use super::process::{this_process, threads};
use super::recording::Since;
use super::say;
use crate::capture::{Commit, Counters, Driver, Encoder};
use crate::error::Error;
use crate::file_limit;
use crate::record::{CONTEXTS, Cursor, DeviceCopy, LogPart, STACKS, recorder, thread};
use crate::snapshot::{Device, Health, Module, Peak, Process, Settings, StackId};
use crate::symbol;

/// Between two looks at the log.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Records copied while the device's lock is held: under a millisecond. After a gap what is live is
/// copied, too.
const PORTION: usize = 8192;

#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    file: File,
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

/// How far a device's log has been written.
#[derive(Clone, Copy, Debug)]
struct Place {
    device: Device,
    cursor: Cursor,
    /// Records were lost: scopes no longer follow from the log.
    gap: bool,
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

/// Numbers in the order of first use, from 0.
#[derive(Debug)]
struct Numbers<K> {
    numbers: HashMap<K, u32>,
    /// Those that do not stand in the file yet, in order.
    new: Vec<K>,
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), new: Vec::new() }
    }

    fn of(&mut self, key: K) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert_with(|| {
            self.new.push(key);
            next
        })
    }

    /// Forgets what came after the first `count`.
    fn go_back(&mut self, count: usize) {
        self.numbers.retain(|_, number| (*number as usize) < count);
        self.new.clear();
    }
}

impl Stream {
    /// Makes a new file.
    pub(super) fn create(path: &Path, settings: &Settings, started_unix_us: u64) -> Result<Self, Error> {
        let output = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::exists(path),
            _ => Error::output(path, error),
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| Error::output(path, error))?;
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(output)?;
        let mut stream = Self {
            path: path.to_owned(),
            file,
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
        self.write_out()?;
        self.commit()
    }

    /// Appends what is new; false once it is closed. After a failure the file is as before, and the
    /// next flush begins where this one did.
    pub(super) fn flush(&mut self, since: Since) -> Result<bool, Error> {
        if self.closed {
            return Ok(false);
        }
        match self.append(since, false).and_then(|()| self.commit()) {
            Ok(()) => self.failing = false,
            Err(error) => self.go_back(error),
        }
        Ok(true)
    }

    /// Appends the rest and the end mark.
    pub(super) fn close(&mut self, since: Since, driver: impl Fn(Device) -> Driver) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.finish(since, driver).map_err(|error| {
            let _ = self.file.set_len(self.committed.length);
            Error::output(&self.path, error)
        })
    }

    fn finish(&mut self, since: Since, driver: impl Fn(Device) -> Driver) -> io::Result<()> {
        // Devices that are new since the last flush become known by this.
        self.append(since, false)?;
        let devices: Vec<Device> = self.devices.iter().map(|place| place.device).collect();
        devices.into_iter().try_for_each(|device| self.encoder.driver(device, driver(device)))?;
        self.append(since, true)?;
        self.file.sync_data()
    }

    fn commit(&mut self) -> io::Result<()> {
        self.committed = Committed {
            length: self.file.stream_position()?,
            devices: self.devices.clone(),
            stacks: self.stacks.numbers.len(),
            addresses: self.addresses.numbers.len(),
            contexts: self.contexts,
            modules: self.modules.len(),
        };
        Ok(())
    }

    /// Takes back what was not committed: the disk is full, perhaps for a while.
    fn go_back(&mut self, error: io::Error) {
        let _ = self.file.set_len(self.committed.length);
        let _ = self.file.seek(SeekFrom::Start(self.committed.length));
        self.encoder.out().clear();
        self.devices.clone_from(&self.committed.devices);
        self.stacks.go_back(self.committed.stacks);
        self.addresses.go_back(self.committed.addresses);
        self.modules.truncate(self.committed.modules);
        (self.contexts, self.threads) = (self.committed.contexts, 0);
        if !self.failing {
            let path = self.path.display();
            say(&format!("cannot write {path}: {error}; what it holds so far is good, and memtrace goes on trying"));
        }
        self.failing = true;
    }

    fn append(&mut self, since: Since, last: bool) -> io::Result<()> {
        let mut anything = last;
        let mut health = Health { spans: spans(), ..since.missed.since() };
        for device in recorder::devices() {
            anything |= self.append_device(device, last, &mut health)?;
        }
        if !anything {
            return Ok(());
        }
        self.append_threads(last)?;
        self.encoder.commit(&Commit { duration_ns: since.began.elapsed().as_nanos() as u64, health })?;
        if last {
            self.encoder.end()?;
        }
        self.write_out()
    }

    /// One device's news; false if there are none.
    fn append_device(&mut self, device: Device, last: bool, health: &mut Health) -> io::Result<bool> {
        let at = self.devices.iter().position(|place| place.device == device);
        let mut place = at.and_then(|at| self.devices.get(at).copied()).unwrap_or(Place {
            device,
            cursor: Cursor::default(),
            gap: false,
        });
        // What does not follow from the records is written once, at the end.
        let mut anything = last || at.is_none();
        let mut behind = false;
        loop {
            let mut part = LogPart::default();
            let whole = last || behind;
            let Some(copied) = recorder::read_log(device, &mut place.cursor, PORTION, whole, &mut part) else {
                return Ok(false);
            };
            anything |= part.lost > 0 || !part.records.is_empty() || !part.marks.is_empty();
            if part.lost > 0 {
                self.encoder.gap(device, part.lost)?;
                (behind, place.gap) = (true, true);
            }
            anything |= !part.names.is_empty() || part.lost_names > 0 || !part.segments.is_empty();
            if part.lost_marks > 0 {
                (anything, place.gap) = (true, true);
            }
            let complete = !behind || whole;
            self.append_part(device, &mut part)?;
            if let Some(copy) = copied.filter(|_| complete) {
                health.lost_blocks += copy.ledger.lost_blocks;
                health.missed_frees += copy.ledger.missed_frees;
                health.lost_scopes += copy.ledger.lost_scopes;
                if anything {
                    self.append_state(device, copy, whole, place.gap || last)?;
                }
                break;
            }
        }
        match at.and_then(|at| self.devices.get_mut(at)) {
            Some(known) => *known = place,
            None => self.devices.push(place),
        }
        Ok(anything)
    }

    fn append_part(&mut self, device: Device, part: &mut LogPart) -> io::Result<()> {
        for record in &mut part.records {
            record.stack = self.stack(record.stack);
            record.alloc_stack = self.stack(record.alloc_stack);
        }
        part.segments.iter_mut().for_each(|record| record.stack = self.stack(record.stack));
        self.append_names()?;
        self.encoder.segment_records(device, &part.segments)?;
        self.encoder.records(device, &part.records)?;
        if !part.marks.is_empty() {
            self.encoder.marks(device, &part.marks)?;
        }
        self.encoder.names(device, &part.names, part.lost_names)?;
        self.write_out()
    }

    fn append_state(&mut self, device: Device, copy: DeviceCopy, whole: bool, scopes: bool) -> io::Result<()> {
        let DeviceCopy { mut ledger, below_threshold, not_recorded } = copy;
        let blocks = ledger.live.iter_mut().chain(&mut ledger.peak.blocks);
        blocks.for_each(|block| block.stack = self.stack(block.stack));
        ledger.ooms.iter_mut().for_each(|oom| oom.stack = self.stack(oom.stack));
        ledger.calls.iter_mut().for_each(|time| time.stack = self.stack(time.stack));
        self.append_names()?;
        if whole {
            self.encoder.live(device, &ledger.live)?;
            self.encoder.peak(device, &ledger.peak.blocks)?;
        }
        let peak = Peak { blocks: Vec::new(), ..ledger.peak };
        let mut stats = ledger.stats;
        stats.below_threshold = below_threshold;
        self.encoder.counters(device, &Counters { not_recorded, below_threshold, peak, stats })?;
        self.encoder.ooms(device, &ledger.ooms)?;
        self.encoder.calls(device, &ledger.calls)?;
        if scopes {
            self.encoder.scopes(device, &ledger.scopes)?;
        }
        Ok(())
    }

    /// The file's number of a stack: 0 is no stack.
    fn stack(&mut self, stack: StackId) -> StackId {
        if stack == StackId::NONE { stack } else { StackId(self.stacks.of(stack) + 1) }
    }

    /// What the records to come refer to.
    fn append_names(&mut self) -> io::Result<()> {
        let contexts = CONTEXTS.nodes_from(self.contexts);
        if !contexts.is_empty() {
            self.encoder.contexts(&contexts)?;
            self.contexts += contexts.len();
        }
        let new = std::mem::take(&mut self.stacks.new);
        if new.is_empty() {
            return Ok(());
        }
        let stacks: Vec<Vec<u32>> = new.into_iter().map(|stack| self.calls(stack)).collect();
        let addresses = std::mem::take(&mut self.addresses.new);
        self.append_modules(&addresses)?;
        if !addresses.is_empty() {
            self.encoder.addresses(addresses.into_iter())?;
        }
        self.encoder.stacks(stacks.iter().map(Vec::as_slice))
    }

    fn calls(&mut self, stack: StackId) -> Vec<u32> {
        let mut addresses = Vec::new();
        STACKS.copy_to(stack, &mut addresses);
        addresses.into_iter().map(|address| self.addresses.of(address)).collect()
    }

    /// Libraries may have been loaded meanwhile.
    fn append_modules(&mut self, addresses: &[u64]) -> io::Result<()> {
        let known = |address: &u64| self.modules.iter().any(|module| module.range.contains(address));
        if addresses.iter().all(known) {
            return Ok(());
        }
        let new: Vec<Module> =
            symbol::loaded_modules().into_iter().filter(|module| !self.modules.contains(module)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.modules.extend(new);
        self.encoder.modules(&self.modules)
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

    fn write_out(&mut self) -> io::Result<()> {
        let _limit = file_limit::errors_only();
        self.file.write_all(self.encoder.out())?;
        self.encoder.out().clear();
        Ok(())
    }
}
