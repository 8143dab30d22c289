//! Test builder for recordings of one device. A story lists events in order, and everything else is derived from them.
//! `words` has the events, `derive` the derived state.
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
//! `at` and `thread` apply to the events that follow. `on`, `address`, `named` and so on modify the last alloc. Labels name
//! blocks within the story; a label can be reused once its block is freed.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::super::{
    BlockName, CallTime, ContextId, Device, DeviceMemory, DeviceSnapshot, Mark, MemoryStats, OutOfMemory, Peak, Pool,
    Record, SegmentRecord, SnapshotData, Stacks, ThreadId, segments,
};
use super::derive::StoryReplay;
use super::fixtures::net;

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoryStep {
    Record(Record),
    Mark(Mark),
    Segment(SegmentRecord),
    Refused(OutOfMemory),
}

/// A story under construction.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Everything but the device.
    pub(super) data: SnapshotData,
    pub(super) device: Device,
    /// The events.
    pub(super) steps: Vec<StoryStep>,
    /// Bytes from before the recording, and bytes below the threshold.
    before: u64,
    below_threshold: u64,
    /// Number of the oldest records that were overwritten.
    overwritten: usize,
    has_log: bool,
    pub(super) names: Vec<BlockName>,
    pool: Option<Pool>,
    memory: Option<DeviceMemory>,
    calls: Vec<CallTime>,
    /// Time and thread of the next event.
    pub(super) time_ns: u64,
    pub(super) thread: ThreadId,
    /// The open scopes, in the order of entering.
    pub(super) open: Vec<(ThreadId, ContextId)>,
    /// Number of allocated blocks, and the address of the next one.
    pub(super) allocs: u64,
    pub(super) next_address: u64,
    /// The step of each live block's alloc, by label.
    pub(super) labels: HashMap<String, usize>,
}

impl Story {
    /// A story of the heap.
    pub(crate) fn cpu() -> Self {
        Self::of(Device::Cpu)
    }

    /// A story of a GPU, whose blocks come from the pool by default.
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

    /// Sets the bytes live when the recording began.
    pub(crate) fn before(&mut self, bytes: u64) -> &mut Self {
        self.before = bytes;
        self
    }

    /// Sets the bytes below the threshold, live throughout.
    pub(crate) fn below_threshold(&mut self, bytes: u64) -> &mut Self {
        self.below_threshold = bytes;
        self
    }

    /// Samples blocks below this size.
    pub(crate) fn sampled(&mut self, interval: u64) -> &mut Self {
        let settings = &mut self.data.settings;
        (settings.min_size, settings.sample_interval) = (0, NonZeroU64::new(interval));
        self
    }

    /// Replaces the stack table.
    pub(crate) fn stacks(&mut self, stacks: Stacks) -> &mut Self {
        self.data.stacks = stacks;
        self
    }

    /// Sets the time of the snapshot.
    pub(crate) fn lasting(&mut self, duration_ns: u64) -> &mut Self {
        self.data.process.duration_ns = duration_ns;
        self
    }

    /// Drops the oldest records of the log.
    pub(crate) fn overwritten(&mut self, records: usize) -> &mut Self {
        self.overwritten = records;
        self
    }

    /// Drops the log.
    pub(crate) fn without_log(&mut self) -> &mut Self {
        self.has_log = false;
        self
    }

    /// Sets the driver's pool statistics.
    pub(crate) fn pool(&mut self, pool: Pool) -> &mut Self {
        self.pool = Some(pool);
        self
    }

    /// Sets the driver's device statistics.
    pub(crate) fn memory_of_device(&mut self, memory: DeviceMemory) -> &mut Self {
        self.memory = Some(memory);
        self
    }

    /// Adds time in driver calls.
    pub(crate) fn driver_took(&mut self, time: CallTime) -> &mut Self {
        self.calls.push(time);
        self
    }

    /// The recording.
    pub(crate) fn build(&self) -> SnapshotData {
        SnapshotData { devices: vec![self.device()], ..self.data.clone() }
    }

    /// The device of the recording.
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
            records,
            live,
            ..DeviceSnapshot::default()
        }
    }

    /// The part of the log that is left.
    fn kept(&self, mut records: Vec<Record>) -> Vec<Record> {
        if self.has_log { records.split_off(self.overwritten) } else { Vec::new() }
    }
}
