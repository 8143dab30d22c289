//! Rows of a report of ranks, as JSON has them.

use serde::Serialize;

use crate::analysis::{self, DevicePeak, RankChange, RankSummary, Ranks};

/// A rank with its peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RankRow {
    /// The rank; null if neither the recording nor the file's name has it.
    rank: Option<u32>,
    /// The rank is that of the file's name.
    rank_of_file_name: bool,
    /// The recording's file.
    file: String,
    /// The machine's name; null if the recording does not say.
    host: Option<String>,
    /// The process; null if the recording does not say.
    pid: Option<u32>,
    /// The device that is compared; null if nothing was recorded on it.
    device: Option<String>,
    /// Live bytes at the peak, or at the report's moment.
    peak_bytes: u64,
    /// Bytes that the device has; null if they are not known.
    capacity_bytes: Option<u64>,
    /// The capacity without these bytes; null if it is not known.
    headroom_bytes: Option<i64>,
    /// The largest row of the first table; null without one.
    largest: Option<LargestRow>,
    /// The file ends without its end mark: the process was killed, or is still writing it.
    cut_off: bool,
    /// All GPUs that the rank used, or the one that was chosen.
    gpus: Vec<GpuRow>,
}

/// The largest row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LargestRow {
    /// The key.
    pub(super) label: String,
    /// Its bytes.
    pub(super) bytes: u64,
}

/// What is live on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GpuRow {
    /// The device.
    device: String,
    /// Live bytes at the peak, or at the report's moment.
    peak_bytes: u64,
    /// Bytes that the device has; null if they are not known.
    capacity_bytes: Option<u64>,
    /// The capacity without these bytes; null if it is not known.
    headroom_bytes: Option<i64>,
}

impl GpuRow {
    pub(crate) fn of(gpu: &DevicePeak) -> Self {
        Self {
            device: gpu.device.to_string(),
            peak_bytes: gpu.bytes,
            capacity_bytes: gpu.capacity,
            headroom_bytes: gpu.headroom(),
        }
    }
}

impl LargestRow {
    /// Of the rank's first table.
    pub(super) fn of(rank: &RankSummary) -> Option<Self> {
        let row = rank.tables.first()?.rows.first()?;
        Some(Self { label: row.label.clone(), bytes: row.bytes })
    }
}

impl RankRow {
    pub(crate) fn of(rank: &RankSummary) -> Self {
        let peak = rank.peak.as_ref();
        Self {
            rank: rank.process.rank,
            rank_of_file_name: rank.is_rank_of_name,
            file: rank.file.clone(),
            host: rank.has_process().then(|| rank.process.host.clone()),
            pid: rank.has_process().then_some(rank.process.pid),
            device: peak.map(|peak| peak.device.to_string()),
            peak_bytes: rank.bytes(),
            capacity_bytes: peak.and_then(|peak| peak.capacity),
            headroom_bytes: peak.and_then(DevicePeak::headroom),
            largest: LargestRow::of(rank),
            cut_off: rank.is_cut_off,
            gpus: rank.gpus.iter().map(GpuRow::of).collect(),
        }
    }
}

/// What one key holds over the ranks, each at its own peak, or at the report's moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SpreadRow {
    /// The key.
    label: String,
    /// The most bytes of a rank without those of the median; the figures of a row that sums others are null but for the sum.
    imbalance_bytes: Option<u64>,
    /// The least that a rank has; a rank without the row has 0.
    least_bytes: Option<u64>,
    /// What the median rank has; of an even number of ranks the lower one of the middle two.
    median_bytes: Option<u64>,
    /// The most that a rank has.
    most_bytes: Option<u64>,
    /// The rank with the most, if it has a number.
    most_rank: Option<u32>,
    /// Its file.
    most_file: Option<String>,
    /// How many ranks lack the row.
    lacking: Option<usize>,
    /// What all ranks have together.
    sum_bytes: u64,
}

impl SpreadRow {
    pub(super) fn of(ranks: &Ranks, row: &analysis::SpreadRow) -> Self {
        let rank = ranks.ranks.get(row.most_at);
        Self {
            label: row.label.clone(),
            imbalance_bytes: Some(row.imbalance()),
            least_bytes: Some(row.least),
            median_bytes: Some(row.median),
            most_bytes: Some(row.most),
            most_rank: rank.and_then(|rank| rank.process.rank),
            most_file: rank.map(|rank| rank.file.clone()),
            lacking: Some(row.lacking),
            sum_bytes: row.sum,
        }
    }

    /// Of the rows that are not shown.
    pub(super) fn of_rest(label: String, sum_bytes: u64) -> Self {
        Self {
            label,
            imbalance_bytes: None,
            least_bytes: None,
            median_bytes: None,
            most_bytes: None,
            most_rank: None,
            most_file: None,
            lacking: None,
            sum_bytes,
        }
    }
}

/// A rank's peak before and after. What only one side has is null on the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RankChangeRow {
    /// The rank.
    rank: u32,
    /// `after_bytes` minus `before_bytes`; a side without the rank counts as 0.
    change_bytes: i64,
    /// Live bytes at the peak before.
    before_bytes: Option<u64>,
    /// Live bytes at the peak after.
    after_bytes: Option<u64>,
    /// The device that is compared before; null if nothing was recorded on it.
    before_device: Option<String>,
    /// The device that is compared after.
    after_device: Option<String>,
    /// The recording before.
    before_file: Option<String>,
    /// The recording after.
    after_file: Option<String>,
}

impl RankChangeRow {
    pub(super) fn of(rank: &RankChange<'_>) -> Self {
        let device = |side: Option<&RankSummary>| Some(side?.peak.as_ref()?.device.to_string());
        let file = |side: Option<&RankSummary>| side.map(|side| side.file.clone());
        Self {
            rank: rank.rank,
            change_bytes: rank.change(),
            before_bytes: rank.before.map(RankSummary::bytes),
            after_bytes: rank.after.map(RankSummary::bytes),
            before_device: device(rank.before),
            after_device: device(rank.after),
            before_file: file(rank.before),
            after_file: file(rank.after),
        }
    }
}
