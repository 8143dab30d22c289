//! Rows of a report of ranks, as JSON has them.

use crate::analysis::{self, DevicePeak, RankChange, RankSummary, Ranks};
use crate::figures::figures;

figures! {
    /// A rank with its peak.
    pub(crate) struct RankRow(rank: &RankSummary)
        let peak = rank.peak.as_ref();
    {
        /// The rank; null if neither the recording nor the file's name has it.
        rank: Option<u32> = rank.process.rank,
        /// The rank is that of the file's name.
        rank_of_file_name: bool = rank.is_rank_of_name,
        /// The recording's file.
        file: String = rank.file.clone(),
        /// The machine's name; null if the recording does not say.
        host: Option<String> = rank.has_process().then(|| rank.process.host.clone()),
        /// The process; null if the recording does not say.
        pid: Option<u32> = rank.has_process().then_some(rank.process.pid),
        /// The device that is compared; null if nothing was recorded on it.
        device: Option<String> = peak.map(|peak| peak.device.to_string()),
        /// Live bytes at the peak, or at the report's moment.
        peak_bytes: u64 = rank.bytes(),
        /// Bytes that the device has; null if they are not known.
        capacity_bytes: Option<u64> = peak.and_then(|peak| peak.capacity),
        /// The capacity without these bytes; null if it is not known.
        headroom_bytes: Option<i64> = peak.and_then(DevicePeak::headroom),
        /// The largest row of the first table; null without one.
        largest: Option<LargestRow> = largest(rank),
        /// The file ends without its end mark: the process was killed, or is still writing it.
        cut_off: bool = rank.is_cut_off,
        /// All GPUs that the rank used, or the one that was chosen.
        gpus: Vec<GpuRow> = rank.gpus.iter().map(GpuRow::of).collect(),
    }

    /// The largest row of a table.
    pub(super) struct LargestRow(row: &analysis::Row) {
        /// The key.
        pub(super) label: String = row.label.clone(),
        /// Its bytes.
        pub(super) bytes: u64 = row.bytes,
    }

    /// What is live on a GPU.
    pub(crate) struct GpuRow(gpu: &DevicePeak) {
        /// The device.
        device: String = gpu.device.to_string(),
        /// Live bytes at the peak, or at the report's moment.
        peak_bytes: u64 = gpu.bytes,
        /// Bytes that the device has; null if they are not known.
        capacity_bytes: Option<u64> = gpu.capacity,
        /// The capacity without these bytes; null if it is not known.
        headroom_bytes: Option<i64> = gpu.headroom(),
    }

    /// What one key holds over the ranks, each at its own peak, or at the report's moment.
    #[derive(Default)]
    pub(crate) struct SpreadRow(ranks: &Ranks, row: &analysis::SpreadRow)
        let rank = ranks.ranks.get(row.most_at);
    {
        /// The key.
        label: String = row.label.clone(),
        /// The most bytes of a rank without those of the median; the figures of a row that sums others are null but for the sum.
        imbalance_bytes: Option<u64> = Some(row.imbalance()),
        /// The least that a rank has; a rank without the row has 0.
        least_bytes: Option<u64> = Some(row.least),
        /// What the median rank has; of an even number of ranks the lower one of the middle two.
        median_bytes: Option<u64> = Some(row.median),
        /// The most that a rank has.
        most_bytes: Option<u64> = Some(row.most),
        /// The rank with the most, if it has a number.
        most_rank: Option<u32> = rank.and_then(|rank| rank.process.rank),
        /// Its file.
        most_file: Option<String> = rank.map(|rank| rank.file.clone()),
        /// How many ranks lack the row.
        lacking: Option<usize> = Some(row.lacking),
        /// What all ranks have together.
        sum_bytes: u64 = row.sum,
    }

    /// A rank's peak before and after. What only one side has is null on the other.
    pub(crate) struct RankChangeRow(rank: &RankChange<'_>)
        let device = |side: Option<&RankSummary>| Some(side?.peak.as_ref()?.device.to_string());
        let file = |side: Option<&RankSummary>| side.map(|side| side.file.clone());
    {
        /// The rank.
        rank: u32 = rank.rank,
        /// `after_bytes` minus `before_bytes`; a side without the rank counts as 0.
        change_bytes: i64 = rank.change(),
        /// Live bytes at the peak before.
        before_bytes: Option<u64> = rank.before.map(RankSummary::bytes),
        /// Live bytes at the peak after.
        after_bytes: Option<u64> = rank.after.map(RankSummary::bytes),
        /// The device that is compared before; null if nothing was recorded on it.
        before_device: Option<String> = device(rank.before),
        /// The device that is compared after.
        after_device: Option<String> = device(rank.after),
        /// The recording before.
        before_file: Option<String> = file(rank.before),
        /// The recording after.
        after_file: Option<String> = file(rank.after),
    }
}

/// That of the rank's first table.
pub(super) fn largest(rank: &RankSummary) -> Option<LargestRow> {
    Some(LargestRow::of(rank.tables.first()?.rows.first()?))
}

impl SpreadRow {
    /// Of the rows that are not shown.
    pub(super) fn of_rest(label: String, sum_bytes: u64) -> Self {
        Self { label, sum_bytes, ..Self::default() }
    }
}
