//! One-time initialization: a pool's threads, a thread's buffers, statics.
//!
//! Whichever test runs first pays for it, so it does not count against limits and baselines. It is recognized by
//! functions on the stack.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::measure::Measured;
use super::origins::{BlockOrigin, in_snapshot};
use crate::session::Snapshot;
use crate::snapshot::{Device, DeviceSnapshot, Frame, Replay, SnapshotData, StackId};
use crate::units::Bytes;

/// Functions that initialize something once, and what that is called.
const ONE_TIME: [(&str, &str); 8] = [
    ("rayon_core::registry::Registry::new", "rayon's threads"),
    ("rayon_core::registry::global_registry", "rayon's threads"),
    ("std::sys::thread_local::native::lazy::", "a thread's own variable"),
    ("std::sys::sync::once::", "a static"),
    ("std::sync::once_lock::OnceLock", "a static"),
    ("std::sync::lazy_lock::LazyLock", "a static"),
    ("once_cell::imp::", "a static"),
    ("print_to_buffer_if_capture_used", "text that the test harness keeps"),
];

/// Sources whose own blocks belong to a thread pool: a crate, and a part of the file's path.
const POOLS: [(&str, &str); 6] = [
    ("/rayon-core-", ""),
    ("/crossbeam-deque-", ""),
    ("/crossbeam-epoch-", ""),
    ("/crossbeam-utils-", ""),
    ("/tokio-", "/src/runtime/blocking/pool.rs"),
    ("/tokio-", "/src/runtime/builder.rs"),
];

/// What a stack initializes once; `None` for memory that the code needs in each run.
pub(super) fn one_time(data: &SnapshotData, stack: StackId) -> Option<&'static str> {
    let is_gemms = || data.stacks.frames(stack).any(|frame| frame.function_or_empty().contains("gemm_common"));
    let listed = |frame: &Frame| ONE_TIME.iter().find(|(function, _)| frame.function_or_empty().contains(function));
    match data.stacks.frames(stack).find_map(listed) {
        Some((_, "a thread's own variable")) if is_gemms() => Some("gemm's buffer for a thread"),
        Some((_, what)) => Some(what),
        None => is_pools(data, stack).then_some("a pool's threads and queues"),
    }
}

/// The origins in a measurement that are one-time initialization.
pub(super) fn one_time_origins(measured: &Measured) -> HashSet<BlockOrigin> {
    let data = measured.snapshot();
    let is_one_time = |(origin, stack): (BlockOrigin, StackId)| one_time(&data, stack).map(|_| origin);
    in_snapshot(measured, &data).into_iter().filter_map(is_one_time).collect()
}

/// Whether one of the pools' sources requested the block itself.
fn is_pools(data: &SnapshotData, stack: StackId) -> bool {
    let is_std = |frame: &&Frame| frame.file.is_none() || frame.file_or_empty().contains("/library/");
    let asked = data.stacks.frames(stack).find(|frame| !is_std(frame));
    asked.is_some_and(|frame| {
        POOLS
            .iter()
            .any(|(package, path)| frame.file_or_empty().contains(package) && frame.file_or_empty().contains(path))
    })
}

/// A measurement, whole and without one-time initialization.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) all: Snapshot,
    /// Without one-time initialization.
    pub(super) data: SnapshotData,
    /// Bytes of one-time initialization live at the peak, the most first.
    pub(super) left_out: Vec<(&'static str, u64)>,
}

impl Needed {
    pub(super) fn of(measured: &Measured) -> Self {
        let all = measured.snapshot();
        Self { data: without(&all), left_out: left_out(&all), all }
    }

    /// A note on the one-time initialization at the peak, if there was any.
    pub(super) fn setup(&self) -> Option<String> {
        let parts: Vec<String> =
            self.left_out.iter().map(|(what, bytes)| format!("{} for {what}", Bytes(*bytes))).collect();
        (!parts.is_empty()).then(|| format!("one-time initialization, not counted: {}", parts.join(", ")))
    }

    /// A device's peak.
    pub(super) fn peak(&self, device: Device) -> u64 {
        self.data.device(device).map_or(0, |device| device.peak.bytes)
    }
}

fn left_out(data: &SnapshotData) -> Vec<(&'static str, u64)> {
    let mut sums = BTreeMap::new();
    for block in data.devices.iter().flat_map(|device| &device.peak.blocks) {
        if let Some(what) = one_time(data, block.stack) {
            *sums.entry(what).or_default() += block.size;
        }
    }
    let mut sums: Vec<(&'static str, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    sums
}

fn without(data: &SnapshotData) -> SnapshotData {
    let mut data = data.clone();
    let mut known: HashMap<StackId, bool> = HashMap::new();
    let mut devices = std::mem::take(&mut data.devices);
    for device in &mut devices {
        let mut is_needed = |stack| *known.entry(stack).or_insert_with(|| one_time(&data, stack).is_none());
        // If the log has lost its beginning, the peak without those blocks is unknown.
        if device.overwritten == 0 && device.peak.blocks.iter().any(|block| !is_needed(block.stack)) {
            device.records.retain(|record| is_needed(record.alloc_stack));
            device.live.retain(|block| is_needed(block.stack));
            find_peak(device);
        }
    }
    data.devices = devices;
    data
}

/// Finds the peak by replaying the log, which must be complete.
fn find_peak(device: &mut DeviceSnapshot) {
    let (mut live, mut most, mut at) = (Replay::default(), 0, 0);
    for (number, record) in device.records.iter().enumerate() {
        live.apply(record);
        if live.bytes() > most {
            (most, at) = (live.bytes(), number + 1);
        }
    }
    let mut live = Replay::default();
    device.records.iter().take(at).for_each(|record| live.apply(record));
    let blocks = live.blocks();
    (device.peak.seq, device.peak.time_ns) = blocks.last().map_or((None, 0), |block| (block.seq, block.time_ns));
    device.peak.bytes = most;
    device.peak.blocks = blocks;
}
