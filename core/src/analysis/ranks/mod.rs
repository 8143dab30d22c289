//! Ranks of a distributed job, each with its recording: which rank needs most, which has least room, and how evenly
//! memory is spread. Each recording is reduced when it is read ([`RankSummary`]), so that only one is in memory at a
//! time.
//!
//! | file | holds |
//! |---|---|
//! | `summary` | a reduced recording |
//! | `names` | the rank in a file's name |
//! | `jobs` | which recordings belong to the same job |
//! | `spread` | how evenly the rows of a table are spread over ranks |

mod jobs;
mod names;
mod spread;
mod summary;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

pub use self::jobs::{job_with_ranks, jobs};
pub use self::names::rank_of_name;
pub use self::spread::SpreadRow;
pub use self::summary::{DevicePeak, RankSummary};
use super::{Key, Moment};

/// A file that could not be read, or whose memory at the compared moment is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreadFile {
    /// Name of the file.
    pub file: String,
    /// Why, in words.
    pub reason: String,
}

/// A file that was left out, because another file is of the same rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecondFile {
    /// Name of the file.
    pub file: String,
    /// Name of the file that counts, because its recording ends later.
    pub counts: String,
}

/// The ranks of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The ranks by number. Those without a number come last, by file.
    pub ranks: Vec<RankSummary>,
    /// The moment at which they are compared.
    pub moment: Moment,
    /// Ranks whose live memory at that moment is not known. They are not counted.
    pub without: Vec<RankSummary>,
    /// The keys of their tables.
    pub keys: Vec<Key>,
    /// Files that were left out because another file is of the same rank.
    pub seconds: Vec<SecondFile>,
    /// Files that could not be read.
    pub unread: Vec<UnreadFile>,
}

impl Ranks {
    /// Collects the ranks of one job. If a rank, or a process, has several recordings, the one that ends last counts.
    pub fn of(summaries: Vec<RankSummary>, keys: Vec<Key>, unread: Vec<UnreadFile>) -> Self {
        let mut by_rank: BTreeMap<(bool, u32, String), Vec<RankSummary>> = BTreeMap::new();
        for summary in summaries {
            let (host, pid, began) = summary.identity();
            let key = match summary.process.rank {
                Some(rank) => (false, rank, String::new()),
                None if summary.has_process() => (true, 0, format!("{host} {pid} {began}")),
                None => (true, 0, format!("file {}", summary.file)),
            };
            by_rank.entry(key).or_default().push(summary);
        }
        let (mut ranks, mut seconds) = (Vec::new(), Vec::new());
        for mut all in by_rank.into_values() {
            all.sort_by(|a, b| (a.ended_unix_us(), &a.file).cmp(&(b.ended_unix_us(), &b.file)));
            let Some(last) = all.pop() else { continue };
            let second = |one: RankSummary| SecondFile { file: one.file, counts: last.file.clone() };
            seconds.extend(all.into_iter().map(second));
            ranks.push(last);
        }
        ranks.sort_by(|a, b| number_then_file(a).cmp(&number_then_file(b)));
        let (without, ranks) = ranks.into_iter().partition(|rank| rank.moment_unknown.is_some());
        Self { ranks, moment: Moment::Peak, without, keys, seconds, unread }
    }

    /// The rank with the largest peak; the first of equal ones. A peak on a GPU counts as larger than any in host
    /// memory.
    pub fn worst(&self) -> Option<&RankSummary> {
        self.ranks.iter().rev().max_by_key(|rank| rank.weight())
    }

    /// The rank with the median peak. For an even number of ranks, the lower one of the middle two.
    pub fn median(&self) -> Option<&RankSummary> {
        let mut sorted: Vec<&RankSummary> = self.ranks.iter().collect();
        sorted.sort_by_key(|rank| rank.weight());
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }

    /// The device with the least headroom, and its rank. Among equal devices, the first. `None` if no capacity is
    /// known.
    pub fn least_headroom(&self) -> Option<(&RankSummary, &DevicePeak)> {
        let all = self.ranks.iter().flat_map(|rank| rank.gpus.iter().map(move |gpu| (rank, gpu)));
        all.filter(|(_, gpu)| gpu.capacity.is_some()).min_by_key(|(_, gpu)| gpu.headroom())
    }

    /// Number of ranks, as reported by the launcher.
    pub fn world_size(&self) -> Option<u32> {
        self.all().filter_map(|rank| rank.process.launcher.world_size).max()
    }

    /// All ranks whose files were read.
    pub fn all(&self) -> impl Iterator<Item = &RankSummary> {
        self.ranks.iter().chain(&self.without)
    }

    /// The numbers of ranks that have a file, sorted. A file that could not be read counts for the rank in its name.
    fn numbers(&self) -> Vec<u32> {
        let unread = self.unread.iter().filter_map(|unread| rank_of_name(&unread.file));
        let mut numbers: Vec<u32> = self.all().filter_map(|rank| rank.process.rank).chain(unread).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether a file that could not be read has this rank in its name.
    pub fn has_unread(&self, rank: u32) -> bool {
        self.unread.iter().any(|unread| rank_of_name(&unread.file) == Some(rank))
    }

    /// The highest rank that has a file.
    pub fn highest(&self) -> Option<u32> {
        self.numbers().last().copied()
    }

    /// Ranks without a file, as ranges of numbers: those below the launcher's number of ranks, or below the highest
    /// rank with a file.
    pub fn missing(&self) -> Vec<RangeInclusive<u32>> {
        // Wider integers, because the highest rank needs a number above it.
        let end = self.world_size().map_or(0, u64::from);
        let (mut next, mut missing) = (0, Vec::new());
        for rank in self.numbers().into_iter().map(u64::from).chain([end]) {
            if rank > next {
                missing.push(next as u32..=(rank - 1) as u32);
            }
            next = next.max(rank + 1);
        }
        missing
    }

    /// The table at this position of [`keys`](Self::keys), over all ranks. The largest imbalance comes first, then the
    /// largest row.
    pub fn spread(&self, table: usize) -> Vec<SpreadRow> {
        spread::spread(&self.ranks, table)
    }
}

fn number_then_file(rank: &RankSummary) -> (bool, Option<u32>, &str) {
    (rank.process.rank.is_none(), rank.process.rank, &rank.file)
}
