//! Sections of a report: tables of values, without formatting.

use std::borrow::Cow;
use std::slice;

use super::rows::NamedRows;
use super::tables::more;

/// A table with its explanations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its stable key.
    pub key: Cow<'static, str>,
    /// Its heading.
    pub title: String,
    /// True if its sums are estimates from a sample.
    pub is_estimate: bool,
    /// Lines above the table, which say what it shows.
    pub about: Vec<String>,
    /// The headings, one for each cell of a row.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// Lines below the table, which say what follows from it.
    pub notes: Vec<String>,
    /// The rows for JSON. `None` for tables, such as that of scopes, whose rows JSON has among the figures of the
    /// device.
    pub(crate) named: Option<NamedRows>,
}

impl Section {
    /// A section without a table.
    pub(crate) fn of_lines(key: &'static str, title: impl Into<String>, about: Vec<String>) -> Self {
        Self { key: key.into(), title: title.into(), about, ..Self::default() }
    }

    pub(crate) fn of_columns(
        key: impl Into<Cow<'static, str>>,
        title: impl Into<String>,
        columns: &[&'static str],
    ) -> Self {
        Self { key: key.into(), title: title.into(), columns: columns.to_vec(), ..Self::default() }
    }

    /// Adds a row with figures in the first columns only.
    pub(crate) fn partial_row(&mut self, front: Vec<Cell>, label: String) {
        let mut row = front;
        row.resize(self.columns.len().saturating_sub(1), Cell::Nothing);
        row.push(Cell::Text(label));
        self.rows.push(row);
    }

    /// Adds the shown rows, and one row for the folded ones. `cells` makes the first cells of both kinds of rows.
    /// `own` makes the label of a shown row, and a cell that only shown rows have.
    pub(super) fn rows_and_more<T>(
        &mut self,
        (shown, folded): (&[T], &[T]),
        own: impl Fn(&T) -> (Option<Cell>, &String),
        cells: impl Fn(&[T]) -> Vec<Cell>,
    ) {
        for row in shown {
            let (own, label) = own(row);
            self.partial_row(cells(slice::from_ref(row)).into_iter().chain(own).collect(), label.clone());
        }
        if !folded.is_empty() {
            self.partial_row(cells(folded), more(folded.len()));
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The column does not apply to this row.
    Nothing,
    /// The figure is unknown.
    Unknown,
    /// Bytes of a single block; never an estimate.
    Bytes(u64),
    /// A sum or maximum of bytes; an estimate if the section is one.
    Sum(u64),
    /// A difference in bytes, with a sign only if it is negative.
    Signed(i64),
    /// A change in bytes, with a plus or a minus sign.
    Change(i64),
    /// A difference in bytes, shown to the byte.
    Exactly(i64),
    /// A number of items.
    Count(u64),
    /// A part of a whole.
    Share {
        /// The part, in the unit of the whole.
        part: u64,
        /// The whole; if it is 0, there are no shares.
        whole: u64,
    },
    /// A duration in nanoseconds.
    Time(u64),
    /// A text: line, scope or name.
    Text(String),
}
