//! A recording of one device, told in the order in which it happened. `words` has what may happen,
//! `derive` what follows from it.
//!
//! ```text
//! let mut trace = Story::cpu();
//! trace.before(1024);
//! trace.at(900).enter("forward");
//! trace.at(1_000).alloc("weights", 2000).on(LINE_7);
//! trace.at(2_500).leave("forward");
//! trace.at(4_000).free("weights");
//! trace.build()
//! ```
//!
//! `at` and `thread` hold for what follows them. What stands behind an alloc (`on`, `address`, `named` …) is about that
//! alloc. Blocks have labels, which are the story's alone; a label may be used again once its block was freed.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::super::{
    BlockName, CallTime, ContextId, Device, DeviceMemory, DeviceSnapshot, Mark, MemoryStats, OutOfMemory, Peak, Pool,
    Record, SegmentRecord, SnapshotData, Stacks, ThreadId, segments,
};
use super::derive::StoryReplay;
use super::fixtures::net;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoryStep {
    Record(Record),
    Mark(Mark),
    Segment(SegmentRecord),
    Refused(OutOfMemory),
}

/// The story so far.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// All but the device.
    pub(super) data: SnapshotData,
    pub(super) device: Device,
    /// What happened.
    pub(super) steps: Vec<StoryStep>,
    /// Bytes from before the recording, and in blocks below the threshold.
    before: u64,
    below_threshold: u64,
    /// So many of the oldest records were overwritten; without a log there never were any.
    overwritten: usize,
    has_log: bool,
    pub(super) names: Vec<BlockName>,
    pool: Option<Pool>,
    memory: Option<DeviceMemory>,
    calls: Vec<CallTime>,
    /// What holds for the next step.
    pub(super) time_ns: u64,
    pub(super) thread: ThreadId,
    /// The scopes that are open, in the order in which they were entered.
    pub(super) open: Vec<(ThreadId, ContextId)>,
    /// How many blocks were allocated, and where the next one goes.
    pub(super) allocs: u64,
    pub(super) next_address: u64,
    /// The live blocks' allocs among the steps, by label.
    pub(super) labels: HashMap<String, usize>,
}

impl Story {
    /// A recording of the heap.
    pub(crate) fn cpu() -> Self {
        Self::of(Device::Cpu)
    }

    /// A recording of a GPU. Its blocks come from the pool, unless they say otherwise.
    pub(crate) fn cuda(ordinal: u32) -> Self {
        Self::of(Device::Cuda(ordinal))
    }

    fn of(device: Device) -> Self {
        Self {
            data: net(),
            device,
            steps: Vec::new(),
            before: 0,
            below_threshold: 0,
            overwritten: 0,
            has_log: true,
            names: Vec::new(),
            pool: None,
            memory: None,
            calls: Vec::new(),
            time_ns: 0,
            thread: ThreadId(1),
            open: Vec::new(),
            allocs: 0,
            next_address: 0x1000,
            labels: HashMap::new(),
        }
    }

    /// So much was live when the recording began.
    pub(crate) fn before(&mut self, bytes: u64) -> &mut Self {
        self.before = bytes;
        self
    }

    /// So much was live all the time in blocks below the threshold.
    pub(crate) fn below_threshold(&mut self, bytes: u64) -> &mut Self {
        self.below_threshold = bytes;
        self
    }

    /// Of blocks below this size only some were recorded.
    pub(crate) fn sampled(&mut self, interval: u64) -> &mut Self {
        let settings = &mut self.data.settings;
        (settings.min_size, settings.sample_interval) = (0, NonZeroU64::new(interval));
        self
    }

    /// The stacks of another program.
    pub(crate) fn stacks(&mut self, stacks: Stacks) -> &mut Self {
        self.data.stacks = stacks;
        self
    }

    /// The snapshot was taken then.
    pub(crate) fn lasting(&mut self, duration_ns: u64) -> &mut Self {
        self.data.process.duration_ns = duration_ns;
        self
    }

    /// The log has lost its oldest records.
    pub(crate) fn overwritten(&mut self, records: usize) -> &mut Self {
        self.overwritten = records;
        self
    }

    /// Only the state was recorded.
    pub(crate) fn without_log(&mut self) -> &mut Self {
        self.has_log = false;
        self
    }

    /// What the driver said of the pool.
    pub(crate) fn pool(&mut self, pool: Pool) -> &mut Self {
        self.pool = Some(pool);
        self
    }

    /// What the driver said of the whole device.
    pub(crate) fn memory_of_device(&mut self, memory: DeviceMemory) -> &mut Self {
        self.memory = Some(memory);
        self
    }

    /// How long the driver took for the blocks of one place.
    pub(crate) fn driver_took(&mut self, time: CallTime) -> &mut Self {
        self.calls.push(time);
        self
    }

    /// The recording.
    pub(crate) fn build(&self) -> SnapshotData {
        SnapshotData { devices: vec![self.device()], ..self.data.clone() }
    }

    /// Its device alone.
    pub(crate) fn device(&self) -> DeviceSnapshot {
        let sampling = self.data.settings.sampling(self.device);
        let replay = StoryReplay { steps: &self.steps, before: self.before, sampling, contexts: &self.data.contexts };
        let (end, peak) = (self.steps.len(), replay.peak());
        let (live, told, log) = (replay.live(end), replay.segments(end), replay.segment_records());
        let records = self.kept(replay.records());
        DeviceSnapshot {
            device: self.device,
            sampling,
            overwritten: self.overwritten as u64,
            gaps: Vec::new(),
            not_recorded: replay.not_recorded(end),
            below_threshold: self.below_threshold,
            peak: Peak { below_threshold: self.below_threshold, ..peak },
            stats: MemoryStats { below_threshold: self.below_threshold, ..replay.stats() },
            ooms: replay.ooms(),
            pool: self.pool,
            memory: self.memory,
            segments: segments::cover(&records, &live, &told, &log),
            segment_records: log,
            calls: self.calls.clone(),
            scopes: replay.scopes(),
            marks: replay.marks(),
            names: self.names.clone(),
            lost_names: 0,
            records,
            live,
        }
    }

    /// What the log still has.
    fn kept(&self, mut records: Vec<Record>) -> Vec<Record> {
        if self.has_log { records.split_off(self.overwritten) } else { Vec::new() }
    }
}
