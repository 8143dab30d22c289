//! Parts of a device in the document: its peak, its counters, and what the driver says of it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::{self, Fragmentation, TimeRow};
use crate::recording::DeviceView;
use crate::report::{Finding, coverage, device_memory, sampled};
use crate::snapshot::{self, Device, DeviceSnapshot, MemoryStats, RecordKind, Stat, UnifiedMemory};

/// The moment at which most bytes were live.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Peak {
    /// The sum of `bytes` and `below_threshold_bytes`.
    total_bytes: u64,
    /// Live bytes in blocks of at least `min_size`.
    bytes: u64,
    /// The part of `bytes` from before the recording.
    before_recording_bytes: u64,
    /// Live bytes in smaller blocks.
    below_threshold_bytes: u64,
    /// Number of recorded blocks that were live.
    blocks: usize,
    /// Nanoseconds since the recording began.
    time_ns: u64,
}

impl Peak {
    pub(super) fn of(peak: &snapshot::Peak) -> Self {
        Self {
            total_bytes: peak.total(),
            bytes: peak.bytes,
            before_recording_bytes: peak.not_recorded,
            below_threshold_bytes: peak.below_threshold,
            blocks: peak.blocks.len(),
            time_ns: peak.time_ns,
        }
    }
}

/// Balance of the device's memory, on the heap that of the process's resident memory at `mapped_time_ns`; the rows add up to
/// `used_bytes`.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MemoryBalance {
    /// Total bytes of the device; null for the process.
    total_bytes: Option<u64>,
    /// Bytes in use, by all processes; resident bytes of the process.
    used_bytes: u64,
    /// Of an integrated device, whose memory is the host's: what the host said at the same moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    unified: Option<UnifiedMemory>,
    rows: Vec<BalanceRow>,
}

/// A part of the memory in use.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BalanceRow {
    /// What it is.
    label: String,
    /// Its bytes; below 0 if something is counted twice.
    bytes: i64,
}

impl MemoryBalance {
    pub(super) fn of(device: &DeviceView<'_>) -> Option<Self> {
        let balance = analysis::balance(device)?;
        let unified = device.memory.and_then(|memory| memory.unified);
        let row = |row: analysis::BalanceRow| BalanceRow { label: device_memory::name(&row.item), bytes: row.bytes };
        let rows = balance.rows.into_iter().map(row).collect();
        Some(Self { total_bytes: balance.total, used_bytes: balance.used, unified, rows })
    }
}

/// Segments of the device's memory, and holes between live blocks.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Segments {
    #[serde(flatten)]
    all: Fragmentation,
    /// Bytes of them in no live block.
    unused_bytes: u64,
    /// Segments that the log saw come.
    came: usize,
    /// Segments that the log saw go.
    went: usize,
    /// The same by pool of PyTorch's allocator, if it has private ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<SegmentsOfPool>,
}

/// Segments of one pool.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SegmentsOfPool {
    /// The pool's two numbers; null for what is shared.
    pool: Option<(u64, u64)>,
    #[serde(flatten)]
    all: Fragmentation,
}

impl Segments {
    pub(super) fn of(device: &DeviceSnapshot) -> Self {
        let seen = |kind| device.segment_records.iter().filter(|record| record.kind == kind).count();
        let all = analysis::fragmentation(device);
        let pools = analysis::fragmentation_by_pool(device);
        let has_private = pools.iter().any(|(pool, _)| pool.is_some());
        let pools = pools.into_iter().filter(|_| has_private).map(|(pool, all)| SegmentsOfPool { pool, all });
        let (came, went) = (seen(RecordKind::Alloc), seen(RecordKind::Free));
        Self { all, unused_bytes: all.unused(), came, went, pools: pools.collect() }
    }
}

/// Time in the driver's allocator.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DriverTime {
    all: TimeRow,
    /// By user line.
    pub(super) by_line: Vec<TimeRow>,
    /// By scope.
    pub(super) by_scope: Vec<TimeRow>,
}

impl DriverTime {
    pub(super) fn of(device: &DeviceView<'_>) -> Option<Self> {
        let is_there = matches!(device.device, Device::Cuda(_)) && !device.calls.is_empty();
        is_there.then(|| Self {
            all: analysis::time_in_driver(device),
            by_line: analysis::time_by_line(device),
            by_scope: analysis::time_by_scope(device),
        })
    }
}

/// The driver's figures of the device's default memory pool.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Pool {
    #[serde(flatten)]
    pool: snapshot::Pool,
    /// Bytes of recorded live blocks from pools.
    recorded_bytes: Option<u64>,
}

impl Pool {
    pub(super) fn of(device: &DeviceSnapshot) -> Option<Self> {
        let recorded_bytes = analysis::pool_balance(device).map(|balance| balance.recorded);
        device.pool.map(|pool| Self { pool, recorded_bytes })
    }
}

/// What a framework's own allocator holds.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AllocatorRow {
    /// The framework.
    label: String,
    /// Bytes of its blocks at the peak.
    bytes: u64,
    /// Number of its blocks; null if only bytes are known.
    count: Option<u64>,
    /// What that means.
    note: String,
}

impl AllocatorRow {
    pub(super) fn all(device: &DeviceView<'_>) -> Vec<Self> {
        let named =
            |(row, note): (analysis::Row, _)| Self { label: row.label, bytes: row.bytes, count: row.count, note };
        coverage::allocator_notes(device).into_iter().map(named).collect()
    }
}

/// Details of the sample: estimated and counted figures.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Sample {
    /// The sampling interval.
    interval_bytes: u64,
    /// What the figures are, as a sentence.
    note: Option<String>,
    /// Recorded blocks that are live.
    recorded_live_blocks: usize,
    /// Their real sizes.
    recorded_live_bytes: u64,
    /// Counted bytes that are live.
    counted_now_bytes: Option<u64>,
    /// Counted bytes that were live at the peak.
    counted_at_peak_bytes: Option<u64>,
    /// Counted bytes from before the recording.
    counted_before_recording_bytes: Option<u64>,
}

impl Sample {
    pub(super) fn of(device: &DeviceSnapshot) -> Option<Self> {
        let (interval, counted) = (device.sample_interval()?, device.stats.counted);
        Some(Self {
            interval_bytes: interval,
            note: sampled::note(Some(interval)),
            recorded_live_blocks: device.live.len(),
            recorded_live_bytes: device.live.iter().map(|block| block.size).fold(0, u64::saturating_add),
            counted_now_bytes: counted.map(|counted| counted.now),
            counted_at_peak_bytes: counted.map(|counted| counted.at_peak),
            counted_before_recording_bytes: counted.map(|counted| counted.before),
        })
    }
}

/// With the keys of `torch.cuda.memory_stats`.
pub(super) fn stats(stats: &MemoryStats) -> BTreeMap<String, u64> {
    let quantities = [
        ("allocated_bytes", stats.allocated_bytes),
        ("active_bytes", stats.active_bytes),
        ("reserved_bytes", stats.reserved_bytes),
        ("allocation", stats.allocations),
    ];
    let parts = quantities.into_iter().flat_map(|(name, Stat { current, peak, allocated, freed })| {
        let parts = [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
        parts.map(|(part, value)| (format!("{name}.all.{part}"), value))
    });
    let others = [
        ("num_ooms", stats.num_ooms),
        ("num_alloc_retries", stats.num_alloc_retries),
        ("below_threshold_bytes", stats.below_threshold),
    ];
    parts.chain(others.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// A finding with its sentences.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::export) struct FindingFigures {
    #[serde(flatten)]
    finding: Finding,
    /// The cost as the report says it.
    cost_in_words: String,
    /// How certain the finding is, and why, as a sentence.
    certainty: String,
}

impl FindingFigures {
    pub(in crate::export) fn of(finding: &Finding) -> Self {
        let (cost_in_words, certainty) = (finding.cost.to_string(), finding.certainty());
        Self { finding: finding.clone(), cost_in_words, certainty }
    }
}
