//! The difference of two recordings, or of two moments of one recording. Each row of a breakdown has its bytes before
//! and after. Rows are matched by function, operator and name; addresses and line numbers may differ.

mod lines;
mod side;

pub(crate) use lines::without_numbers;
pub use side::DiffSide;
pub(super) use side::MatchedRow;

use std::cmp::Ordering;

use super::live::LiveSet;
use super::rows::{Breakdown, Key, Row};

/// One row of a [`Diff`]. A new row has zero bytes before; a row that is gone has zero bytes after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffRow {
    /// The row's label after; if the row is gone, its label before.
    pub label: String,
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
    /// Blocks before; `None` if only the bytes are known.
    pub blocks_before: Option<u64>,
    /// Blocks after; `None` if only the bytes are known.
    pub blocks_after: Option<u64>,
}

impl DiffRow {
    /// Bytes after minus bytes before.
    pub fn change(&self) -> i64 {
        difference(self.before, self.after)
    }

    /// The order of rows: the largest change first, then by label.
    pub(super) fn largest_first(&self, other: &Self) -> Ordering {
        let change = |row: &Self| row.change().unsigned_abs();
        change(other).cmp(&change(self)).then_with(|| self.label.cmp(&other.label))
    }
}

/// The matched rows of two breakdowns. The largest change comes first; equal changes are sorted by label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// All rows, including unchanged ones.
    pub rows: Vec<DiffRow>,
    /// The sum of all rows before.
    pub before: u64,
    /// The sum of all rows after.
    pub after: u64,
}

impl Diff {
    /// The difference of two live sets, by `key`.
    pub fn of(before: &LiveSet<'_>, after: &LiveSet<'_>, key: Key) -> Self {
        Self::of_sides(&DiffSide::of(before, key), &DiffSide::of(after, key))
    }

    /// The total after minus the total before.
    pub fn change(&self) -> i64 {
        difference(self.before, self.after)
    }

    /// The difference of two breakdowns. In each of them, rows with equal labels are merged.
    pub(super) fn of_breakdowns(before: &Breakdown, after: &Breakdown) -> Self {
        Self::of_sides(&DiffSide::of_rows(&before.rows), &DiffSide::of_rows(&after.rows))
    }

    fn of_sides(before: &DiffSide, after: &DiffSide) -> Self {
        Self::of_rows(before.matched(after).iter().map(MatchedRow::row).collect())
    }

    pub(super) fn of_rows(mut rows: Vec<DiffRow>) -> Self {
        rows.sort_by(DiffRow::largest_first);
        let sum = |of: fn(&DiffRow) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
        let (before, after) = (sum(|row| row.before), sum(|row| row.after));
        Self { rows, before, after }
    }
}

impl DiffSide {
    /// Rows of a live set.
    pub fn of(live: &LiveSet<'_>, key: Key) -> Self {
        let mut side = match key {
            Key::Thread => Self::of_rows(&by_named_thread(live)),
            key => Self::of_rows(&live.by(key).rows),
        };
        if key == Key::Line {
            lines::add_places(&mut side, live);
        }
        side
    }

    /// Matches the rows of this side with those of a later one: lines by function, order and what they allocate,
    /// other rows by label.
    pub(super) fn matched(&self, after: &Self) -> Vec<MatchedRow> {
        match self.has_places() || after.has_places() {
            true => lines::matched(self, after),
            false => self.matched_by_label(after),
        }
    }
}

/// Merges threads without a name, because their numbers differ from run to run.
fn by_named_thread(live: &LiveSet<'_>) -> Vec<Row> {
    let mut threads = live.by(Key::Thread).into_owned();
    for row in threads.rows.iter_mut().filter(|row| row.label.starts_with("(unnamed thread ")) {
        "(unnamed threads)".clone_into(&mut row.label);
    }
    threads.rows
}

pub(crate) fn difference(before: u64, after: u64) -> i64 {
    i64::try_from(i128::from(after) - i128::from(before)).unwrap_or(if after > before { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;
