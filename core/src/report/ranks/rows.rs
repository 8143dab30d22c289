//! Rows of a report of ranks in JSON.

use crate::analysis::{self, DevicePeak, RankChange, RankSummary, Ranks};
use crate::figures::figures;

figures! {
    /// A rank with its live memory.
    pub(crate) struct RankRow(rank: &RankSummary)
        let peak = rank.peak.as_ref();
    {
        /// Number of the rank; null if neither the recording nor the file's name has it.
        rank: Option<u32> = rank.process.rank,
        /// True if the rank is taken from the file's name.
        rank_of_file_name: bool = rank.is_rank_of_name,
        /// Name of the recording's file.
        file: String = rank.file.clone(),
        /// Name of the machine; null if the recording does not have it.
        host: Option<String> = rank.has_process().then(|| rank.process.host.clone()),
        /// Process id; null if the recording does not have it.
        pid: Option<u32> = rank.has_process().then_some(rank.process.pid),
        /// The device that is compared; null if nothing was recorded on it.
        device: Option<String> = peak.map(|peak| peak.device.to_string()),
        /// Live bytes on this device at the rank's peak, or at the report's moment.
        peak_bytes: u64 = rank.bytes(),
        /// Total bytes of this device; null if unknown.
        capacity_bytes: Option<u64> = peak.and_then(|peak| peak.capacity),
        /// `capacity_bytes` minus `peak_bytes`; null if the capacity is unknown.
        headroom_bytes: Option<i64> = peak.and_then(DevicePeak::headroom),
        /// The largest row of the report's first table; null if the rank has no row.
        largest: Option<LargestRow> = largest(rank),
        /// True if the file has no end mark: the process was killed, or is still writing it.
        cut_off: bool = rank.is_cut_off,
        /// All GPUs that the rank used, or only the chosen one.
        gpus: Vec<GpuRow> = rank.gpus.iter().map(GpuRow::of).collect(),
    }

    /// The largest row of a table.
    pub(super) struct LargestRow(row: &analysis::Row) {
        /// The line, function or other key.
        pub(super) label: String = row.label.clone(),
        /// Live bytes of the row.
        pub(super) bytes: u64 = row.bytes,
    }

    /// Live memory of a rank on one GPU.
    pub(crate) struct GpuRow(gpu: &DevicePeak) {
        /// The device, such as `cuda:0`.
        device: String = gpu.device.to_string(),
        /// Live bytes at the peak, or at the report's moment.
        peak_bytes: u64 = gpu.bytes,
        /// Total bytes of the device; null if unknown.
        capacity_bytes: Option<u64> = gpu.capacity,
        /// `capacity_bytes` minus `peak_bytes`; null if the capacity is unknown.
        headroom_bytes: Option<i64> = gpu.headroom(),
    }

    /// Live memory of one line, function or other key over all ranks, each at its own peak or at the report's moment.
    /// In a row that sums other rows, only `label` and `sum_bytes` are not null.
    #[derive(Default)]
    pub(crate) struct SpreadRow(ranks: &Ranks, row: &analysis::SpreadRow)
        let rank = ranks.ranks.get(row.most_at);
    {
        /// The line, function or other key.
        label: String = row.label.clone(),
        /// `most_bytes` minus `median_bytes`.
        imbalance_bytes: Option<u64> = Some(row.imbalance()),
        /// The least bytes on a rank; 0 if a rank lacks the row.
        least_bytes: Option<u64> = Some(row.least),
        /// Bytes on the median rank. For an even number of ranks, the lower one of the middle two.
        median_bytes: Option<u64> = Some(row.median),
        /// The most bytes on a rank.
        most_bytes: Option<u64> = Some(row.most),
        /// The rank with the most bytes; null if it has no number.
        most_rank: Option<u32> = rank.and_then(|rank| rank.process.rank),
        /// Name of that rank's file.
        most_file: Option<String> = rank.map(|rank| rank.file.clone()),
        /// Number of ranks that lack the row.
        lacking: Option<usize> = Some(row.lacking),
        /// Bytes on all ranks together.
        sum_bytes: u64 = row.sum,
    }

    /// The peak of a rank in two jobs. The keys of a job without the rank are null.
    pub(crate) struct RankChangeRow(rank: &RankChange<'_>)
        let device = |side: Option<&RankSummary>| Some(side?.peak.as_ref()?.device.to_string());
        let file = |side: Option<&RankSummary>| side.map(|side| side.file.clone());
    {
        /// Number of the rank.
        rank: u32 = rank.rank,
        /// `after_bytes` minus `before_bytes`. A job without the rank counts as 0.
        change_bytes: i64 = rank.change(),
        /// Live bytes at the peak in the first job.
        before_bytes: Option<u64> = rank.before.map(RankSummary::bytes),
        /// Live bytes at the peak in the second job.
        after_bytes: Option<u64> = rank.after.map(RankSummary::bytes),
        /// The compared device in the first job; null if nothing was recorded on it.
        before_device: Option<String> = device(rank.before),
        /// The compared device in the second job; null if nothing was recorded on it.
        after_device: Option<String> = device(rank.after),
        /// Name of the recording's file in the first job.
        before_file: Option<String> = file(rank.before),
        /// Name of the recording's file in the second job.
        after_file: Option<String> = file(rank.after),
    }
}

/// The largest row of the rank's first table.
pub(super) fn largest(rank: &RankSummary) -> Option<LargestRow> {
    Some(LargestRow::of(rank.tables.first()?.rows.first()?))
}

impl SpreadRow {
    /// The row that sums the rows that are not shown.
    pub(super) fn of_rest(label: String, sum_bytes: u64) -> Self {
        Self { label, sum_bytes, ..Self::default() }
    }
}
