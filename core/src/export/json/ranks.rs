//! The ranks of a job as JSON.

use std::ops::RangeInclusive;

use crate::analysis::{self, DevicePeak, RankSummary, SecondFile, UnreadFile};
use crate::figures::figures;
use crate::report::{GpuRow, RankRow};

figures! {
    /// The ranks that stand out, and what is missing.
    pub(super) struct Ranks(ranks: &analysis::Ranks) {
        /// How many ranks are compared.
        count: usize = ranks.ranks.len(),
        /// What they are compared at, in words.
        moment: String = ranks.moment.words(),
        /// Ranks of which this moment is not known.
        not_compared: Vec<UnreadFile> = ranks.without.iter().filter_map(not_compared).collect(),
        /// The number of ranks that the launcher said; null if it is not recorded.
        world_size: Option<u32> = ranks.world_size(),
        /// The rank with the largest peak, on GPUs before host memory.
        worst: Option<RankRow> = ranks.worst().map(RankRow::of),
        /// The rank with the median peak; of an even number the lower one of the middle two.
        median: Option<RankRow> = ranks.median().map(RankRow::of),
        /// The GPU with the least headroom; null if no capacity is known.
        least_headroom: Option<LeastHeadroom> = ranks.least_headroom().map(|(rank, gpu)| LeastHeadroom::of(rank, gpu)),
        /// Ranks without a file.
        missing: Vec<MissingRanks> = ranks.missing().iter().map(MissingRanks::of).collect(),
        /// Files that could not be read.
        unread: Vec<UnreadFile> = ranks.unread.clone(),
        /// Files that were left out, because another one is of the same rank.
        second_files: Vec<SecondFile> = ranks.seconds.clone(),
    }

    /// The GPU with the least headroom.
    struct LeastHeadroom(rank: &RankSummary, gpu: &DevicePeak) {
        /// Its rank, if that has a number.
        rank: Option<u32> = rank.process.rank,
        /// The recording's file.
        file: String = rank.file.clone(),
        #[serde(flatten)]
        gpu: GpuRow = GpuRow::of(gpu),
    }

    /// Ranks that follow each other.
    struct MissingRanks(range: &RangeInclusive<u32>) {
        /// The first.
        first: u32 = *range.start(),
        /// The last.
        last: u32 = *range.end(),
    }
}

fn not_compared(rank: &RankSummary) -> Option<UnreadFile> {
    Some(UnreadFile { file: rank.file.clone(), reason: rank.moment_unknown.clone()? })
}
