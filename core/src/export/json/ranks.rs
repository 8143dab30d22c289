//! The ranks of a job as JSON.

use std::ops::RangeInclusive;

use crate::analysis::{self, DevicePeak, RankSummary, SecondFile, UnreadFile};
use crate::figures::figures;
use crate::report::{GpuRow, RankRow};

figures! {
    /// The ranks of a job that stand out, and what is missing.
    pub(super) struct Ranks(ranks: &analysis::Ranks) {
        /// Number of ranks that are compared.
        count: usize = ranks.ranks.len(),
        /// The moment at which the ranks are compared, in words.
        moment: String = ranks.moment.words(),
        /// Ranks whose live memory at this moment is not known. They are not compared.
        not_compared: Vec<UnreadFile> = ranks.without.iter().filter_map(not_compared).collect(),
        /// Number of ranks that the launcher reported; null if it is not recorded.
        world_size: Option<u32> = ranks.world_size(),
        /// The rank with the largest peak. A peak on a GPU counts as larger than any in host memory. Null if no rank is
        /// compared.
        worst: Option<RankRow> = ranks.worst().map(RankRow::of),
        /// The rank with the median peak. For an even number of ranks, the lower one of the middle two. Null if no rank
        /// is compared.
        median: Option<RankRow> = ranks.median().map(RankRow::of),
        /// The GPU with the least headroom; null if no capacity is known.
        least_headroom: Option<LeastHeadroom> = ranks.least_headroom().map(|(rank, gpu)| LeastHeadroom::of(rank, gpu)),
        /// Ranks without a file, as ranges.
        missing: Vec<MissingRanks> = ranks.missing().iter().map(MissingRanks::of).collect(),
        /// Files that could not be read.
        unread: Vec<UnreadFile> = ranks.unread.clone(),
        /// Files that were left out because another file is of the same rank.
        second_files: Vec<SecondFile> = ranks.seconds.clone(),
    }

    /// The GPU with the least headroom, over all ranks.
    struct LeastHeadroom(rank: &RankSummary, gpu: &DevicePeak) {
        /// Rank that used the GPU; null if it has no number.
        rank: Option<u32> = rank.process.rank,
        /// Name of the recording's file.
        file: String = rank.file.clone(),
        #[serde(flatten)]
        gpu: GpuRow = GpuRow::of(gpu),
    }

    /// A range of consecutive ranks without a file.
    struct MissingRanks(range: &RangeInclusive<u32>) {
        /// First rank of the range.
        first: u32 = *range.start(),
        /// Last rank of the range.
        last: u32 = *range.end(),
    }
}

fn not_compared(rank: &RankSummary) -> Option<UnreadFile> {
    Some(UnreadFile { file: rank.file.clone(), reason: rank.moment_unknown.clone()? })
}
