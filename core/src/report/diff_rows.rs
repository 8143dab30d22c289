//! Rows of a difference, as table cells and as named rows.

use super::rows::{ChangeRow, NamedRows};
use super::section::{Cell, Section};
use super::tables::more;
use crate::analysis::{DiffRow, difference};

pub(super) const COLUMNS: [&str; 5] = ["Change", "Before", "After", BLOCKS, ""];
const BLOCKS: &str = "Blocks";

/// Adds the rows in `shown`, and one row with the sum of those in `hidden`.
pub(super) fn fill(section: &mut Section, shown: &[&DiffRow], hidden: &[&DiffRow], label: impl Fn(&DiffRow) -> String) {
    let blocks = |row: &DiffRow| section.columns.contains(&BLOCKS).then(|| blocks(row));
    let cells = |row: &&DiffRow| {
        front(row.before, row.after).into_iter().chain(blocks(row)).chain([Cell::Text(label(row))]).collect()
    };
    section.rows = shown.iter().map(cells).collect();
    let mut named: Vec<ChangeRow> = shown.iter().map(|row| ChangeRow::of(row)).collect();
    if !hidden.is_empty() {
        let sum = |of: fn(&DiffRow) -> u64| hidden.iter().map(|row| of(row)).fold(0, u64::saturating_add);
        let (before, after) = (sum(|row| row.before), sum(|row| row.after));
        let rest = DiffRow { label: more(hidden.len()), before, after, ..DiffRow::default() };
        section.partial_row(front(before, after), rest.label.clone());
        named.push(ChangeRow::of(&rest));
    }
    section.named = Some(NamedRows::Changes(named));
}

pub(super) fn front(before: u64, after: u64) -> Vec<Cell> {
    vec![Cell::Change(difference(before, after)), Cell::Sum(before), Cell::Sum(after)]
}

fn blocks(row: &DiffRow) -> Cell {
    row.blocks_before.zip(row.blocks_after).map_or(Cell::Unknown, |(before, after)| {
        Cell::Text(if before == after { before.to_string() } else { format!("{before} → {after}") })
    })
}
