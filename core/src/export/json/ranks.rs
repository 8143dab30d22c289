//! The ranks of a job as JSON.

use serde::Serialize;

use crate::analysis::{self, DevicePeak, RankSummary, SecondFile, UnreadFile};
use crate::report::{GpuRow, RankRow};

/// The ranks that stand out, and what is missing.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Ranks {
    /// How many ranks are compared.
    count: usize,
    /// What they are compared at, in words.
    moment: String,
    /// Ranks of which this moment is not known.
    not_compared: Vec<UnreadFile>,
    /// The number of ranks that the launcher said; null if it is not recorded.
    world_size: Option<u32>,
    /// The rank with the largest peak, on GPUs before host memory.
    worst: Option<RankRow>,
    /// The rank with the median peak; of an even number the lower one of the middle two.
    median: Option<RankRow>,
    /// The GPU with the least headroom; null if no capacity is known.
    least_headroom: Option<LeastHeadroom>,
    /// Ranks without a file.
    missing: Vec<MissingRanks>,
    /// Files that could not be read.
    unread: Vec<UnreadFile>,
    /// Files that were left out, because another one is of the same rank.
    second_files: Vec<SecondFile>,
}

/// The GPU with the least headroom.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeastHeadroom {
    /// Its rank, if that has a number.
    rank: Option<u32>,
    /// The recording's file.
    file: String,
    #[serde(flatten)]
    gpu: GpuRow,
}

/// Ranks that follow each other.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MissingRanks {
    /// The first.
    first: u32,
    /// The last.
    last: u32,
}

impl Ranks {
    pub(super) fn of(ranks: &analysis::Ranks) -> Self {
        let least = |(rank, gpu): (&RankSummary, &DevicePeak)| LeastHeadroom {
            rank: rank.process.rank,
            file: rank.file.clone(),
            gpu: GpuRow::of(gpu),
        };
        Self {
            count: ranks.ranks.len(),
            moment: ranks.moment.words(),
            not_compared: ranks.without.iter().filter_map(not_compared).collect(),
            world_size: ranks.world_size(),
            worst: ranks.worst().map(RankRow::of),
            median: ranks.median().map(RankRow::of),
            least_headroom: ranks.least_headroom().map(least),
            missing: ranks
                .missing()
                .iter()
                .map(|range| MissingRanks { first: *range.start(), last: *range.end() })
                .collect(),
            unread: ranks.unread.clone(),
            second_files: ranks.seconds.clone(),
        }
    }
}

fn not_compared(rank: &RankSummary) -> Option<UnreadFile> {
    Some(UnreadFile { file: rank.file.clone(), reason: rank.moment_unknown.clone()? })
}
