//! A table of a report, as values: whoever shows it says how they look.

/// A table with what is to be said about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its name, the same in every version.
    pub key: &'static str,
    /// Its heading.
    pub title: String,
    /// Are its sums estimates from a sample?
    pub is_estimate: bool,
    /// Lines above the table: what it counts.
    pub about: Vec<String>,
    /// One for each cell of a row.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// Lines below the table: what follows from it.
    pub notes: Vec<String>,
}

impl Section {
    /// One without a table.
    pub(crate) fn of_lines(key: &'static str, title: impl Into<String>, about: Vec<String>) -> Self {
        Self { key, title: title.into(), about, ..Self::default() }
    }

    pub(crate) fn of_columns(key: &'static str, title: impl Into<String>, columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|title| Column { title }).collect();
        Self { key, title: title.into(), columns, ..Self::default() }
    }

    /// A row without figures in most columns: those at the front, nothing, and what they are about.
    pub(crate) fn partial_row(&mut self, front: Vec<Cell>, label: String) {
        let mut row = front;
        row.resize(self.columns.len().saturating_sub(1), Cell::Nothing);
        row.push(Cell::Text(label));
        self.rows.push(row);
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
}

/// What stands in a row under one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The column says nothing of this row.
    Nothing,
    /// The figure is not known.
    Unknown,
    /// Bytes of a single block: never an estimate.
    Bytes(u64),
    /// Bytes of all blocks of a kind, or the most of them: an estimate if the section is one.
    Sum(u64),
    /// A difference in bytes.
    Signed(i64),
    /// The same, to the byte.
    Exactly(i64),
    /// A number of things.
    Count(u64),
    /// A part of a whole.
    Share {
        /// In the same unit as the whole.
        part: u64,
        /// Nothing has shares if this is 0.
        whole: u64,
    },
    /// Nanoseconds.
    Time(u64),
    /// A line, a scope, a name.
    Text(String),
}
