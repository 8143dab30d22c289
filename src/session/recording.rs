//! The active recording, shared by the session, memtrace's threads, the panic hook and the process's exit.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use memtrace_core::capture::Driver;
use memtrace_core::snapshot::{Device, Enabled, Pool, Process, Settings, SnapshotData};

use super::collect::Copied;
use super::dumps::Dumps;
use super::mappings::MappingsReader;
use super::missed::{self, RecordingStart};
use super::outputs::Snapshot;
use super::pending::PendingDump;
use super::process::{host_memory, this_process};
use super::say;
use super::stream::CaptureStream;
use crate::error::Error;
use crate::hook::cuda;
use crate::record::guard::Own;
use crate::record::lock::lock;
use crate::record::uses;
use crate::record::{DeviceCopy, fork, recorder};
use crate::symbol;

/// The recording, shared by everyone who may have to finish it.
pub(super) type SharedRecording = Own<Arc<Recording>>;

static CURRENT: Mutex<Option<SharedRecording>> = Mutex::new(None);

fn with_current<T>(act: impl FnOnce(&mut Option<SharedRecording>) -> T) -> T {
    let _no_fork = fork::no_fork();
    act(&mut lock(&CURRENT))
}

#[derive(Debug)]
pub(super) struct Recording {
    pub(super) settings: Settings,
    since: Mutex<RecordingStart>,
    /// The ordinal of each CUDA device, with the bytes that were in use in its memory pool when the recording began.
    /// `None` if CUDA was not in use then.
    used_before: Mutex<Option<Vec<(u32, u64)>>>,
    stream: Option<Mutex<CaptureStream>>,
    pub(super) dumps: Dumps,
    pub(super) panicked: AtomicBool,
    pub(super) out_of_memory: Mutex<PendingDump>,
    finished: Mutex<bool>,
}

impl Recording {
    pub(super) fn begin(
        settings: &Settings,
        waits: bool,
        stream: Option<CaptureStream>,
        dumps: &Dumps,
    ) -> Result<SharedRecording, Error> {
        cuda::refresh();
        let since = RecordingStart::now();
        let first = if waits { Settings { enabled: Enabled::Off, ..settings.clone() } } else { settings.clone() };
        let mut used_before = None;
        let query = || {
            used_before = cuda::used_pools();
            used_before.clone().unwrap_or_default()
        };
        if !recorder::start(&first, since.began, query) {
            return Err(Error::already_recording());
        }
        let recording = Arc::new(Self {
            settings: settings.clone(),
            since: Mutex::new(since),
            used_before: Mutex::new(used_before),
            stream: stream.map(Mutex::new),
            dumps: dumps.clone(),
            panicked: AtomicBool::new(false),
            out_of_memory: Mutex::new(PendingDump::new(dumps.on_oom)),
            finished: Mutex::new(false),
        });
        with_current(|current| *current = Some(share(&recording)));
        Ok(share(&recording))
    }

    pub(super) fn since(&self) -> RecordingStart {
        lock(&self.since).clone()
    }

    fn copies(&self) -> (RecordingStart, Vec<(Device, DeviceCopy)>) {
        // `switch` and `restart` wait for this lock while the ledgers are copied, so a snapshot never mixes two
        // recordings.
        let since = lock(&self.since);
        (since.clone(), recorder::copies(since.began))
    }

    /// Resumes or pauses the recording of a schedule.
    pub(super) fn switch(&self, on: bool) {
        let enabled = if on { self.settings.enabled } else { Enabled::Off };
        let settings = Settings { enabled, ..self.settings.clone() };
        let mut since = lock(&self.since);
        *since = RecordingStart::now();
        let used = || {
            let used = cuda::used_pools();
            lock(&self.used_before).clone_from(&used);
            used.unwrap_or_default()
        };
        recorder::switch(&settings, since.began, used);
    }

    /// Clears the log, counters and peak; live blocks stay known.
    pub(super) fn restart(&self) {
        let mut since = lock(&self.since);
        *since = RecordingStart::now();
        recorder::restart(since.began);
    }

    /// The CUDA driver's memory figures for a device.
    pub(super) fn driver(&self, device: Device) -> Driver {
        let Device::Cuda(ordinal) = device else { return Driver::default() };
        let before = match &*lock(&self.used_before) {
            Some(pools) => pools.iter().find(|(known, _)| *known == ordinal).map(|(_, used)| *used),
            None => Some(0),
        };
        let Driver { pool, memory } = cuda::driver(ordinal);
        Driver { pool: pool.map(|pool| Pool { used_before: before, ..pool }), memory }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| self.collect())
    }

    fn collect(&self) -> SnapshotData {
        if recorder::was_forked() {
            // Take no locks in a forked child: a thread that no longer exists may have held one.
            let mut data = SnapshotData::default();
            (data.process, data.settings) = (this_process(), self.settings.clone());
            return data;
        }
        self.copied().finish()
    }

    /// Copies the state at this moment. Must not be called in a forked child, because it takes locks.
    pub(super) fn copied(&self) -> Copied {
        cuda::settle();
        let (since, copies) = self.copies();
        let duration_ns = since.began.elapsed().as_nanos() as u64;
        let memory = host_memory(duration_ns);
        let mut reader = MappingsReader::new(self.settings.min_size);
        let mappings = memory.and_then(|memory| reader.grown(memory.resident, &symbol::loaded_objects(), duration_ns));
        let process = Process { started_unix_us: since.unix_us, duration_ns, memory, mappings, ..this_process() };
        let gpu_work = uses::work(0);
        let drivers = copies.iter().map(|(device, _)| self.driver(*device)).collect();
        let (settings, health) = (self.settings.clone(), missed::since(&since.missed));
        Copied { settings, process, health, copies, drivers, gpu_work }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream.is_some()
    }

    /// Appends new records to the streamed capture. False if there is no such capture, or it is closed.
    pub(super) fn flush(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        lock(stream).flush(self.since())
    }

    /// Writes the last dump and closes the capture, once. Both the session's end and the process's exit call this. The
    /// second caller waits, because neither the process nor the ledgers may go away while the first one writes.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let mut finished = lock(&self.finished);
        if std::mem::replace(&mut *finished, true) {
            return Ok(());
        }
        if self.dumps.at_end {
            self.dumps.write(&self.snapshot(), "at the end");
        }
        match &self.stream {
            Some(stream) => lock(stream)
                .close(self.since(), |device| self.driver(device))
                .map_err(|error| error.and("everything written before is valid")),
            None => Ok(()),
        }
    }
}

/// The active recording; `None` in a forked child.
pub(super) fn current() -> Option<SharedRecording> {
    if recorder::was_forked() {
        return None;
    }
    with_current(|current| current.as_ref().map(|shared| share(shared)))
}

pub(super) fn end(recording: &Recording) -> Result<(), Error> {
    if recorder::was_forked() {
        return Ok(());
    }
    let finished = recording.finish();
    // The current recording is removed before the recorder stops, because another session may start as soon as it has
    // stopped, and then its recording becomes the current one.
    drop(with_current(Option::take));
    recorder::stop();
    finished
}

/// Called when the process exits.
pub(super) fn finish_current() {
    if let Some(recording) = current()
        && let Err(error) = recording.finish()
    {
        say(&error.to_string());
    }
}

pub(super) fn share(recording: &Arc<Recording>) -> SharedRecording {
    Own::new(Arc::clone(recording))
}
