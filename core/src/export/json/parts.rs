//! Parts of a device in the document: its peak, its counters, and what the driver says of it.

use std::collections::BTreeMap;

use crate::analysis::{self, Fragmentation, TimeRow};
use crate::figures::figures;
use crate::recording::DeviceView;
use crate::report::{Finding, device_memory, sampled};
use crate::snapshot::{self, DeviceSnapshot, MemoryStats, RecordKind, Stat, UnifiedMemory};

figures! {
    /// The moment at which most bytes were live.
    pub(super) struct Peak(peak: &snapshot::Peak) {
        /// The sum of `bytes` and `below_threshold_bytes`.
        total_bytes: u64 = peak.total(),
        /// Live bytes in blocks of at least `min_size`.
        bytes: u64 = peak.bytes,
        /// The part of `bytes` from before the recording.
        before_recording_bytes: u64 = peak.not_recorded,
        /// Live bytes in smaller blocks.
        below_threshold_bytes: u64 = peak.below_threshold,
        /// Number of recorded blocks that were live.
        blocks: usize = peak.blocks.len(),
        /// Nanoseconds since the recording began.
        time_ns: u64 = peak.time_ns,
    }

    /// Balance of the device's memory, on the heap that of the process's resident memory at `mapped_time_ns`; the rows add up to
    /// `used_bytes`.
    pub(super) struct MemoryBalance(device: &DeviceSnapshot, balance: &analysis::Balance) {
        /// Total bytes of the device; null for the process.
        total_bytes: Option<u64> = balance.total,
        /// Bytes in use, by all processes; resident bytes of the process.
        used_bytes: u64 = balance.used,
        /// Of an integrated device, whose memory is the host's: what the host said at the same moment.
        #[serde(skip_serializing_if = "Option::is_none")]
        unified: Option<UnifiedMemory> = device.memory.and_then(|memory| memory.unified),
        rows: Vec<BalanceRow> = balance.rows.iter().map(BalanceRow::of).collect(),
    }

    /// A part of the memory in use.
    struct BalanceRow(row: &analysis::BalanceRow) {
        /// What it is.
        label: String = device_memory::name(&row.item),
        /// Its bytes; below 0 if something is counted twice.
        bytes: i64 = row.bytes,
    }

    /// Segments of the device's memory, and holes between live blocks.
    pub(super) struct Segments(device: &DeviceSnapshot)
        let seen = |kind| device.segment_records.iter().filter(|record| record.kind == kind).count();
        let found = analysis::fragmentation(device);
        let pools = analysis::fragmentation_by_pool(device);
        let has_private = pools.iter().any(|(pool, _)| pool.is_some());
    {
        #[serde(flatten)]
        all: Fragmentation = found,
        /// Bytes of them in no live block.
        unused_bytes: u64 = found.unused(),
        /// Segments that the log saw come.
        came: usize = seen(RecordKind::Alloc),
        /// Segments that the log saw go.
        went: usize = seen(RecordKind::Free),
        /// The same by pool of PyTorch's allocator, if it has private ones.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pools: Vec<SegmentsOfPool> =
            pools.into_iter().filter(|_| has_private).map(|(pool, all)| SegmentsOfPool::of(pool, all)).collect(),
    }

    /// Segments of one pool.
    struct SegmentsOfPool(pool: Option<(u64, u64)>, all: Fragmentation) {
        /// The pool's two numbers; null for what is shared.
        pool: Option<(u64, u64)> = pool,
        #[serde(flatten)]
        all: Fragmentation = all,
    }

    /// Time in the driver's allocator.
    pub(super) struct DriverTime(device: &DeviceView<'_>) {
        all: TimeRow = analysis::time_in_driver(device),
        /// By user line.
        pub(super) by_line: Vec<TimeRow> = analysis::time_by_line(device),
        /// By scope.
        pub(super) by_scope: Vec<TimeRow> = analysis::time_by_scope(device),
    }

    /// The driver's figures of the device's default memory pool.
    pub(super) struct Pool(pool: snapshot::Pool, device: &DeviceSnapshot) {
        #[serde(flatten)]
        pool: snapshot::Pool = pool,
        /// Bytes of recorded live blocks from pools.
        recorded_bytes: Option<u64> = analysis::pool_balance(device).map(|balance| balance.recorded),
    }

    /// What a framework's own allocator holds.
    pub(super) struct AllocatorRow(row: analysis::Row, note: String) {
        /// The framework.
        label: String = row.label,
        /// Bytes of its blocks at the peak.
        bytes: u64 = row.bytes,
        /// Number of its blocks; null if only bytes are known.
        count: Option<u64> = row.count,
        /// What that means.
        note: String = note,
    }

    /// Details of the sample: estimated and counted figures.
    pub(super) struct Sample(interval: u64, device: &DeviceSnapshot)
        let counted = device.stats.counted;
    {
        /// The sampling interval.
        interval_bytes: u64 = interval,
        /// What the figures are, as a sentence.
        note: Option<String> = sampled::note(Some(interval)),
        /// Recorded blocks that are live.
        recorded_live_blocks: usize = device.live.len(),
        /// Their real sizes.
        recorded_live_bytes: u64 = device.live.iter().map(|block| block.size).fold(0, u64::saturating_add),
        /// Counted bytes that are live.
        counted_now_bytes: Option<u64> = counted.map(|counted| counted.now),
        /// Counted bytes that were live at the peak.
        counted_at_peak_bytes: Option<u64> = counted.map(|counted| counted.at_peak),
        /// Counted bytes from before the recording.
        counted_before_recording_bytes: Option<u64> = counted.map(|counted| counted.before),
    }

    /// A finding with its sentences.
    pub(in crate::export) struct FindingFigures(finding: &Finding) {
        #[serde(flatten)]
        finding: Finding = finding.clone(),
        /// The cost as the report says it.
        cost_in_words: String = finding.cost.to_string(),
        /// How certain the finding is, and why, as a sentence.
        certainty: String = finding.certainty(),
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
