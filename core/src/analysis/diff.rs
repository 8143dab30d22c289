//! Difference of two recordings, or of two moments of one recording: for each row of a breakdown the bytes before and
//! after. Rows are matched by function, operator and name; addresses and line numbers may differ.

mod lines;

pub(crate) use lines::without_numbers;

use std::collections::BTreeMap;

use super::breakdown::{
    Breakdown, Row, by_category, by_crate, by_function, by_module, by_name, by_operator, by_parameter, by_scope,
    by_stream, by_thread,
};
use crate::snapshot::{DeviceSnapshot, SnapshotData};

/// What a row of a [`Diff`] stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiffKey {
    /// A source line.
    #[default]
    Line,
    /// A function.
    Function,
    /// A tensor operation.
    Operator,
    /// A part of a model.
    Module,
    /// What the memory is for.
    Category,
    /// A scope, with the scopes around it.
    Scope,
    /// A parameter of a model.
    Parameter,
    /// A name that the program gave to a block.
    Name,
    /// A thread, by its name.
    Thread,
    /// A CUDA stream.
    Stream,
    /// The crate whose code requested the memory.
    Crate,
}

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
    /// What was live at the peak of two devices, by `key`. A device at another moment is
    /// [`Moment::of`](super::Moment::of) the device.
    pub fn of(before: (&SnapshotData, &DeviceSnapshot), after: (&SnapshotData, &DeviceSnapshot), key: DiffKey) -> Self {
        let breakdown = match key {
            DiffKey::Line => return lines::diff(before, after),
            DiffKey::Function => by_function,
            DiffKey::Operator => by_operator,
            DiffKey::Module => by_module,
            DiffKey::Category => by_category,
            DiffKey::Scope => by_scope,
            DiffKey::Parameter => by_parameter,
            DiffKey::Name => by_name,
            DiffKey::Thread => by_named_thread,
            DiffKey::Stream => by_stream,
            DiffKey::Crate => by_crate,
        };
        Self::of_breakdowns(&breakdown(before.0, before.1), &breakdown(after.0, after.1))
    }

    /// The total after minus the total before.
    pub fn change(&self) -> i64 {
        difference(self.before, self.after)
    }

    /// Rows with equal labels are one.
    fn of_breakdowns(before: &Breakdown, after: &Breakdown) -> Self {
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
fn by_named_thread(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let mut threads = by_thread(data, device);
    for row in threads.rows.iter_mut().filter(|row| row.label.starts_with("(unnamed thread ")) {
        "(unnamed threads)".clone_into(&mut row.label);
    }
    threads
}

fn difference(before: u64, after: u64) -> i64 {
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
