//! Difference of two recordings, or of two moments of one recording: for each row of a breakdown the bytes before and
//! after. Rows are matched by function, operator and name; addresses and line numbers may differ.

mod lines;

pub(crate) use lines::without_numbers;

use std::collections::BTreeMap;

use super::live::LiveSet;
use super::rows::{Breakdown, Key, Row};

/// One row of a [`Diff`]: zero bytes before if it is new, zero bytes after if it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffRow {
    /// The row's name after, or before if it is gone.
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
}

/// The rows of two breakdowns, matched. The largest change stands first; equal changes are sorted by label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// All rows, also those that did not change.
    pub rows: Vec<DiffRow>,
    /// The sum of all rows before.
    pub before: u64,
    /// The sum of all rows after.
    pub after: u64,
}

impl Diff {
    /// What two live sets hold, by `key`.
    pub fn of(before: &LiveSet<'_>, after: &LiveSet<'_>, key: Key) -> Self {
        match key {
            Key::Line => lines::diff(before, after),
            Key::Thread => Self::of_breakdowns(&by_named_thread(before), &by_named_thread(after)),
            key => Self::of_breakdowns(&before.by(key), &after.by(key)),
        }
    }

    /// The total after minus the total before.
    pub fn change(&self) -> i64 {
        difference(self.before, self.after)
    }

    /// Rows with equal labels are one.
    pub(super) fn of_breakdowns(before: &Breakdown, after: &Breakdown) -> Self {
        let mut rows: BTreeMap<&str, DiffRow> = BTreeMap::new();
        for row in &before.rows {
            add_before(rows.entry(&row.label).or_insert_with(|| unchanged(row)), row);
        }
        for row in &after.rows {
            add_after(rows.entry(&row.label).or_insert_with(|| unchanged(row)), row);
        }
        Self::of_rows(rows.into_values().collect())
    }

    pub(super) fn of_rows(mut rows: Vec<DiffRow>) -> Self {
        let change = |row: &DiffRow| row.change().unsigned_abs();
        rows.sort_by(|a, b| change(b).cmp(&change(a)).then_with(|| a.label.cmp(&b.label)));
        let before = rows.iter().map(|row| row.before).sum();
        let after = rows.iter().map(|row| row.after).sum();
        Self { rows, before, after }
    }
}

/// Threads without a name are one row: their numbers differ from run to run.
fn by_named_thread(live: &LiveSet<'_>) -> Breakdown {
    let mut threads = live.by(Key::Thread).into_owned();
    for row in threads.rows.iter_mut().filter(|row| row.label.starts_with("(unnamed thread ")) {
        "(unnamed threads)".clone_into(&mut row.label);
    }
    threads
}

pub(super) fn difference(before: u64, after: u64) -> i64 {
    i64::try_from(i128::from(after) - i128::from(before)).unwrap_or(if after > before { i64::MAX } else { i64::MIN })
}

/// A row of zero bytes before and after.
fn unchanged(row: &Row) -> DiffRow {
    let blocks = row.count.map(|_| 0);
    DiffRow { label: row.label.clone(), blocks_before: blocks, blocks_after: blocks, ..DiffRow::default() }
}

fn add_before(sum: &mut DiffRow, row: &Row) {
    sum.before += row.bytes;
    sum.blocks_before = sum.blocks_before.zip(row.count).map(|(sum, count)| sum + count);
}

fn add_after(sum: &mut DiffRow, row: &Row) {
    sum.after += row.bytes;
    sum.blocks_after = sum.blocks_after.zip(row.count).map(|(sum, count)| sum + count);
}

#[cfg(test)]
mod tests;
