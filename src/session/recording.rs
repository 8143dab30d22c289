//! The recording under way, as the session, its threads and the process's end know it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::collect::Copied;
use super::dumps::Dumps;
use super::missed;
use super::outputs::Snapshot;
use super::pending::Pending;
use super::process::this_process;
use super::say;
use super::since::Since;
use super::stream::Stream;
use crate::capture::Driver;
use crate::error::{Error, Kind};
use crate::hook::cuda;
use crate::record::guard::Own;
use crate::record::{DeviceCopy, fork, recorder};
use crate::snapshot::{Device, Enabled, Pool, Process, Settings, SnapshotData};

/// Shared by whoever may have to finish it.
pub(super) type Shared = Own<Arc<Recording>>;

/// The one that is under way.
static CURRENT: Mutex<Option<Shared>> = Mutex::new(None);

fn with_current<T>(act: impl FnOnce(&mut Option<Shared>) -> T) -> T {
    let _no_fork = fork::no_fork();
    act(&mut lock(&CURRENT))
}

#[derive(Debug)]
pub(super) struct Recording {
    pub(super) settings: Settings,
    since: Mutex<Since>,
    /// What was in use in the driver's pools when recording began, by ordinal; `None`: nothing.
    used_before: Mutex<Option<Vec<(u32, u64)>>>,
    stream: Option<Mutex<Stream>>,
    pub(super) dumps: Dumps,
    /// A panic was seen.
    pub(super) panicked: AtomicBool,
    /// The dump that a failed allocation will leave.
    pub(super) out_of_memory: Mutex<Pending>,
    finished: Mutex<bool>,
}

impl Recording {
    /// Begins to record.
    pub(super) fn begin(
        settings: &Settings,
        waits: bool,
        stream: Option<Stream>,
        dumps: &Dumps,
    ) -> Result<Shared, Error> {
        cuda::refresh();
        let since = Since::now();
        let first = if waits { Settings { enabled: Enabled::Off, ..settings.clone() } } else { settings.clone() };
        let mut used = None;
        let ask = || {
            used = cuda::used_pools();
            used.clone().unwrap_or_default()
        };
        if !recorder::start(&first, since.began, ask) {
            return Err(Kind::AlreadyRecording.into());
        }
        let used_before = Mutex::new(used);
        let (since, stream) = (Mutex::new(since), stream.map(Mutex::new));
        let recording = Arc::new(Self {
            settings: settings.clone(),
            since,
            used_before,
            stream,
            dumps: dumps.clone(),
            panicked: AtomicBool::new(false),
            out_of_memory: Mutex::new(Pending::new(dumps.on_oom)),
            finished: Mutex::new(false),
        });
        with_current(|current| *current = Some(share(&recording)));
        Ok(share(&recording))
    }

    pub(super) fn since(&self) -> Since {
        lock(&self.since).clone()
    }

    /// All that is recorded, and since when.
    fn copies(&self) -> (Since, Vec<(Device, DeviceCopy)>) {
        // Held meanwhile: a snapshot has what was before a switch, or what came after it.
        let since = lock(&self.since);
        (since.clone(), recorder::copies(since.began))
    }

    /// Records from now on, or no longer.
    pub(super) fn switch(&self, on: bool) {
        let enabled = if on { self.settings.enabled } else { Enabled::Off };
        let settings = Settings { enabled, ..self.settings.clone() };
        let mut since = lock(&self.since);
        *since = Since::now();
        let used = || {
            let used = cuda::used_pools();
            lock(&self.used_before).clone_from(&used);
            used.unwrap_or_default()
        };
        recorder::switch(&settings, since.began, used);
    }

    /// Begins the log, the counters and the peak anew; what is live stays known.
    pub(super) fn restart(&self) {
        let mut since = lock(&self.since);
        *since = Since::now();
        recorder::restart(since.began);
    }

    /// What the CUDA driver says of a device.
    pub(super) fn driver(&self, device: Device) -> Driver {
        let Device::Cuda(ordinal) = device else { return Driver::default() };
        let before = match &*lock(&self.used_before) {
            Some(pools) => pools.iter().find(|(known, _)| *known == ordinal).map(|(_, used)| *used),
            None => Some(0),
        };
        let pool = cuda::pool(ordinal).map(|pool| Pool { used_before: before, ..pool });
        Driver { pool, memory: cuda::memory(ordinal) }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| self.collect())
    }

    /// Everything that is being recorded, as finished data.
    fn collect(&self) -> SnapshotData {
        if recorder::was_forked() {
            // No lock of the parent's is taken here: another thread of it may have held it.
            let settings = self.settings.clone();
            return SnapshotData { process: this_process(), settings, ..SnapshotData::default() };
        }
        self.copied().finish()
    }

    /// All that changes while the program goes on, as it is at this moment. Not in a forked child: it takes locks.
    pub(super) fn copied(&self) -> Copied {
        cuda::settle();
        let (since, copies) = self.copies();
        let process = Process {
            started_unix_us: since.unix_us,
            duration_ns: since.began.elapsed().as_nanos() as u64,
            ..this_process()
        };
        let drivers = copies.iter().map(|(device, _)| self.driver(*device)).collect();
        Copied { settings: self.settings.clone(), process, health: missed::since(&since.missed), copies, drivers }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream.is_some()
    }

    /// Appends what was recorded since the last time; false when there is nothing more to come.
    pub(super) fn flush(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        lock(stream).flush(self.since())
    }

    /// What is to be done before recording ends, by the session's end or the process's: once. Whoever
    /// comes second waits: neither the process nor the ledger may go while the first one writes.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let mut finished = lock(&self.finished);
        if std::mem::replace(&mut *finished, true) {
            return Ok(());
        }
        if self.dumps.at_end {
            self.dumps.write(|| self.snapshot(), "at the end");
        }
        match &self.stream {
            Some(stream) => lock(stream)
                .close(self.since(), |device| self.driver(device))
                .map_err(|error| error.and("what it holds so far is good")),
            None => Ok(()),
        }
    }
}

/// The recording under way.
pub(super) fn current() -> Option<Shared> {
    if recorder::was_forked() {
        return None;
    }
    with_current(|current| current.as_ref().map(|shared| share(shared)))
}

/// Ends the recording that is under way.
pub(super) fn end(recording: &Recording) -> Result<(), Error> {
    if recorder::was_forked() {
        return Ok(());
    }
    let finished = recording.finish();
    // In this order: as soon as the recorder is free another session may begin, and be the current one.
    drop(with_current(Option::take));
    recorder::stop();
    finished
}

/// At the process's end.
pub(super) fn finish_current() {
    if let Some(recording) = current()
        && let Err(error) = recording.finish()
    {
        say(&error.to_string());
    }
}

pub(super) fn share(recording: &Arc<Recording>) -> Shared {
    Own::new(Arc::clone(recording))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under these locks is a defect of ours; what they protect is still the best there is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
