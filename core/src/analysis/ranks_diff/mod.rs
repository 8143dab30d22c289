//! Comparison of two jobs: each rank with the rank of the same number, and rows over all ranks.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::diff::{DiffRow, DiffSide, MatchedRow, difference};
use super::ranks::{RankSummary, Ranks};

/// The ranks of two jobs, each reduced by [`RankSummary::of_side`]. A recording without a rank has no partner and is
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RanksDiff {
    /// The ranks before a change.
    pub before: Ranks,
    /// The ranks after the change.
    pub after: Ranks,
}

/// A rank before and after a change. `before` or `after` is `None` if that job has no recording of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankChange<'a> {
    /// Its number.
    pub rank: u32,
    /// The rank before.
    pub before: Option<&'a RankSummary>,
    /// The rank after.
    pub after: Option<&'a RankSummary>,
}

/// Bytes of one line, function or other key on all ranks, each rank at its own peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RanksDiffRow {
    /// The sums over the ranks.
    pub row: DiffRow,
    /// The rank whose part of the row changed most; the first among equal ones.
    pub most_rank: u32,
    /// The change of that rank's part, in bytes.
    pub most_change: i64,
}

impl RankChange<'_> {
    /// Bytes at the peak before and after; 0 on a side that has no recording.
    pub fn bytes(&self) -> (u64, u64) {
        let of = |side: Option<&RankSummary>| side.map_or(0, RankSummary::bytes);
        (of(self.before), of(self.after))
    }

    /// Bytes after minus bytes before.
    pub fn change(&self) -> i64 {
        let (before, after) = self.bytes();
        difference(before, after)
    }

    /// Whether both sides have the rank.
    pub fn is_pair(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }
}

impl RanksDiff {
    /// All ranks: the largest change first, then by number.
    pub fn ranks(&self) -> Vec<RankChange<'_>> {
        let mut all = self.by_number();
        all.sort_by_key(|rank| Reverse(rank.change().unsigned_abs()));
        all
    }

    /// The table at this position of [`Ranks::keys`]: the largest change first, then by label. The rows add up to the
    /// sum of the ranks' peaks.
    pub fn rows(&self, table: usize) -> Vec<RanksDiffRow> {
        let ranks = self.by_number();
        let [before, after] = [&self.before, &self.after].map(|ranks| together(ranks, table));
        let rows = before.matched(&after).into_iter().map(|matched| {
            let (most_rank, most_change) = most(&ranks, &matched, table);
            RanksDiffRow { row: matched.row(), most_rank, most_change }
        });
        let mut rows: Vec<RanksDiffRow> = rows.collect();
        rows.sort_by(|a, b| a.row.largest_first(&b.row));
        rows
    }

    fn by_number(&self) -> Vec<RankChange<'_>> {
        let [before, after] = [&self.before, &self.after].map(|ranks| BTreeMap::from_iter(numbered(ranks)));
        let all: BTreeSet<u32> = before.keys().chain(after.keys()).copied().collect();
        let change = |rank| RankChange { rank, before: before.get(&rank).copied(), after: after.get(&rank).copied() };
        all.into_iter().map(change).collect()
    }
}

fn numbered(ranks: &Ranks) -> impl Iterator<Item = (u32, &RankSummary)> {
    ranks.ranks.iter().filter_map(|rank| Some((rank.process.rank?, rank)))
}

/// Rows of all ranks of one job.
fn together(ranks: &Ranks, table: usize) -> DiffSide {
    let mut sum = DiffSide::default();
    numbered(ranks).filter_map(|(_, rank)| rank.sides.get(table)).for_each(|side| sum.add(side));
    sum
}

/// The rank whose part of a row changed most, and by how much.
fn most(ranks: &[RankChange<'_>], row: &MatchedRow, table: usize) -> (u32, i64) {
    let changes = ranks.iter().map(|rank| {
        let [before, after] = [rank.before, rank.after].map(|side| side.and_then(|side| side.sides.get(table)));
        let (before, after) = row.bytes_in(before, after);
        (rank.rank, difference(before, after))
    });
    changes.rev().max_by_key(|(_, change)| change.unsigned_abs()).unwrap_or_default()
}
