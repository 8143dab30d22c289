//! Parts of a device in the document: its peak, its counters, and the driver's figures.

use std::collections::BTreeMap;

use crate::analysis::{self, Fragmentation, NeedRow, TimeRow};
use crate::figures::figures;
use crate::recording::DeviceView;
use crate::report::{Finding, device_memory, sampled};
use crate::snapshot::{self, DeviceSnapshot, MemoryStats, RecordKind, Stat, UnifiedMemory};

figures! {
    /// The moment at which most bytes were live.
    pub(super) struct Peak(peak: &snapshot::Peak) {
        /// Live bytes: the sum of `bytes` and `below_threshold_bytes`.
        total_bytes: u64 = peak.total(),
        /// Live bytes in blocks; on the heap, only in blocks of at least `min_size`.
        bytes: u64 = peak.bytes,
        /// The part of `bytes` without recorded blocks, such as memory from before the recording.
        before_recording_bytes: u64 = peak.not_recorded,
        /// Live bytes in heap blocks smaller than `min_size`.
        below_threshold_bytes: u64 = peak.below_threshold,
        /// Number of recorded blocks that were live.
        blocks: usize = peak.blocks.len(),
        /// When the peak was reached, in nanoseconds since the recording began.
        time_ns: u64 = peak.time_ns,
    }

    /// The device's memory in use, split into rows that add up to `used_bytes`. For the heap: the resident memory of
    /// the process at `mapped_time_ns`.
    pub(super) struct MemoryBalance(device: &DeviceSnapshot, balance: &analysis::Balance) {
        /// Total bytes of the device; null for the heap.
        total_bytes: Option<u64> = balance.total,
        /// Bytes in use by all processes; for the heap, the resident bytes of this process.
        used_bytes: u64 = balance.used,
        /// The host's memory at the same moment. Only for an integrated device, which shares that memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        unified: Option<UnifiedMemory> = device.memory.and_then(|memory| memory.unified),
        rows: Vec<BalanceRow> = balance.rows.iter().map(BalanceRow::of).collect(),
        /// What may be in the unexplained memory, each as a range. The last one is what is left. Absent if it
        /// is not known, or if less is unexplained than CUDA is assumed to take.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unexplained: Vec<NeedRow> = balance.unexplained.clone(),
    }

    /// A part of the memory in use.
    struct BalanceRow(row: &analysis::BalanceRow) {
        /// Name of the part.
        label: String = device_memory::name(&row.item),
        /// Bytes of the part. Negative if it corrects other rows, for example for live blocks that are not in physical
        /// memory.
        bytes: i64 = row.bytes,
    }

    /// Segments (memory reserved in one piece) and holes (parts of segments outside of live blocks).
    pub(super) struct Segments(device: &DeviceSnapshot)
        let seen = |kind| device.segment_records.iter().filter(|record| record.kind == kind).count();
        let found = analysis::fragmentation(device);
        let pools = analysis::fragmentation_by_pool(device);
        let has_private = pools.iter().any(|(pool, _)| pool.is_some());
    {
        #[serde(flatten)]
        all: Fragmentation = found,
        /// Reserved bytes outside of recorded live blocks.
        unused_bytes: u64 = found.unused(),
        /// Number of recorded reservations of segments.
        came: usize = seen(RecordKind::Alloc),
        /// Number of recorded releases of segments.
        went: usize = seen(RecordKind::Free),
        /// The same figures for each pool of PyTorch's allocator. Absent if it has no private pools.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pools: Vec<SegmentsOfPool> =
            pools.into_iter().filter(|_| has_private).map(|(pool, all)| SegmentsOfPool::of(pool, all)).collect(),
    }

    /// Segments of one pool of PyTorch's allocator.
    struct SegmentsOfPool(pool: Option<(u64, u64)>, all: Fragmentation) {
        /// The two numbers that identify a private pool; null for the shared pool.
        pool: Option<(u64, u64)> = pool,
        #[serde(flatten)]
        all: Fragmentation = all,
    }

    /// Time in the driver calls that allocate and free memory.
    pub(super) struct DriverTime(device: &DeviceView<'_>) {
        /// Time in all calls. The label is empty.
        all: TimeRow = analysis::time_in_driver(device),
        /// Time by source line, the most first.
        pub(super) by_line: Vec<TimeRow> = analysis::time_by_line(device),
        /// Time by scope, the most first.
        pub(super) by_scope: Vec<TimeRow> = analysis::time_by_scope(device),
    }

    /// The driver's figures of the device's default memory pool.
    pub(super) struct Pool(pool: snapshot::Pool, device: &DeviceSnapshot) {
        #[serde(flatten)]
        pool: snapshot::Pool = pool,
        /// Live bytes in recorded blocks from memory pools.
        recorded_bytes: Option<u64> = analysis::pool_balance(device).map(|balance| balance.recorded),
    }

    /// Blocks that the allocator of a framework hands out in parts.
    pub(super) struct AllocatorRow(row: analysis::Row, note: String) {
        /// Name of the framework.
        label: String = row.label,
        /// Bytes of these blocks at the peak.
        bytes: u64 = row.bytes,
        /// Number of these blocks; null if only bytes are known.
        count: Option<u64> = row.count,
        /// Explanation of the row, as a sentence.
        note: String = note,
    }

    /// Details of a sample. The counted figures are exact, not estimates.
    pub(super) struct Sample(interval: u64, device: &DeviceSnapshot)
        let counted = device.stats.counted;
    {
        /// The sampling interval in bytes.
        interval_bytes: u64 = interval,
        /// Which figures are estimates, in words.
        note: Option<String> = sampled::note(Some(interval)),
        /// Number of recorded blocks that are live at the end.
        recorded_live_blocks: usize = device.live.len(),
        /// Bytes of the recorded live blocks, by their real sizes.
        recorded_live_bytes: u64 = device.live.iter().map(|block| block.size).fold(0, u64::saturating_add),
        /// Counted bytes that are live at the end; null if unknown.
        counted_now_bytes: Option<u64> = counted.map(|counted| counted.now),
        /// Counted bytes that were live at the peak; null if unknown.
        counted_at_peak_bytes: Option<u64> = counted.map(|counted| counted.at_peak),
        /// Counted bytes from before the recording, in blocks small enough to be sampled; null if unknown.
        counted_before_recording_bytes: Option<u64> = counted.map(|counted| counted.before),
    }

    /// A finding: something in the program that could be better.
    pub(in crate::export) struct FindingFigures(finding: &Finding) {
        #[serde(flatten)]
        finding: Finding = finding.clone(),
        /// The cost in words.
        cost_in_words: String = finding.cost.to_string(),
        /// The confidence and its reason, as a sentence.
        certainty: String = finding.certainty(),
    }
}

/// The counters, with the keys of `torch.cuda.memory_stats`.
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
