//! Rows of a difference as cells.

use super::section::{Cell, Section};
use super::tables::more;
use crate::analysis::DiffRow;

pub(super) const COLUMNS: [&str; 5] = ["Change", "Before", "After", "Blocks", ""];

pub(super) fn change_of(before: u64, after: u64) -> i64 {
    DiffRow { before, after, ..DiffRow::default() }.change()
}

/// Adds one row for all that a table does not show.
pub(super) fn fold(hidden: &[&DiffRow], section: &mut Section) {
    if hidden.is_empty() {
        return;
    }
    let sum = |of: fn(&DiffRow) -> u64| hidden.iter().map(|row| of(row)).sum::<u64>();
    let (before, after) = (sum(|row| row.before), sum(|row| row.after));
    let front = vec![Cell::Change(change_of(before, after)), Cell::Sum(before), Cell::Sum(after)];
    section.partial_row(front, more(hidden.len()));
}

pub(super) fn cells(row: &DiffRow, label: String) -> Vec<Cell> {
    let blocks = row.blocks_before.zip(row.blocks_after).map_or(Cell::Unknown, |(before, after)| {
        Cell::Text(if before == after { before.to_string() } else { format!("{before} → {after}") })
    });
    vec![Cell::Change(row.change()), Cell::Sum(row.before), Cell::Sum(row.after), blocks, Cell::Text(label)]
}
