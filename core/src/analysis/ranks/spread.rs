//! How evenly memory is spread over ranks: the rows of one key, each rank at its own peak.

use std::collections::BTreeMap;

use super::summary::RankSummary;
use crate::hashed::by_key;

/// Bytes of one line, function or other key on all ranks, each at its own peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadRow {
    /// The row's label.
    pub label: String,
    /// The least bytes on a rank. A rank without the row has 0.
    pub least: u64,
    /// Bytes of the median rank. For an even number of ranks, the lower one of the middle two.
    pub median: u64,
    /// The most bytes on a rank.
    pub most: u64,
    /// The position (in the list of ranks) of the rank with the most bytes; the first among equal ones.
    pub most_at: usize,
    /// Number of ranks without the row.
    pub lacking: usize,
    /// Bytes of all ranks together.
    pub sum: u64,
}

impl SpreadRow {
    /// The most minus the median.
    pub fn imbalance(&self) -> u64 {
        self.most - self.median
    }

    fn of(label: &str, held: &[(usize, u64)], ranks: usize) -> Self {
        let mut sizes: Vec<u64> = held.iter().map(|(_, bytes)| *bytes).collect();
        sizes.sort_unstable();
        let (most, lacking) = (sizes.last().copied().unwrap_or(0), ranks - sizes.len());
        // Ranks without the row come first in the order of size.
        let at = |place: usize| place.checked_sub(lacking).map_or(0, |place| sizes.get(place).copied().unwrap_or(0));
        Self {
            label: label.to_owned(),
            least: at(0),
            median: at(ranks.saturating_sub(1) / 2),
            most,
            most_at: held.iter().find(|(_, bytes)| *bytes == most).map_or(0, |(rank, _)| *rank),
            lacking,
            sum: sizes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        }
    }
}

/// The rows of the tables at position `table` of each rank: the largest imbalance first, then the largest row, then
/// by label.
pub(super) fn spread(ranks: &[RankSummary], table: usize) -> Vec<SpreadRow> {
    let tables = ranks.iter().enumerate().filter_map(|(at, rank)| Some((at, rank.tables.get(table)?)));
    let rows = tables.flat_map(|(at, table)| table.rows.iter().map(move |row| (&*row.label, (at, row.bytes))));
    let held = BTreeMap::from_iter(by_key(rows));
    let mut rows: Vec<SpreadRow> =
        held.into_iter().map(|(label, held)| SpreadRow::of(label, &held, ranks.len())).collect();
    // Stable: equal rows stay in the order of their labels.
    rows.sort_by_key(|row| std::cmp::Reverse((row.imbalance(), row.most)));
    rows
}
