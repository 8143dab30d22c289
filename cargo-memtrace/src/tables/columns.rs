//! Columns and cells.

use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Number,
    /// A number that differs little from the one before it.
    Rising,
    /// Microseconds since 1970.
    Time,
    Flag,
}

/// A table: its name and its columns. Every table begins with the column `run`, which is not in the list.
#[derive(Debug)]
pub(crate) struct TableSpec {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, ColumnKind)],
}

impl TableSpec {
    /// All columns.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, ColumnKind)> {
        std::iter::once(("run", ColumnKind::Text)).chain(self.columns.iter().copied())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TableCell<'a> {
    Null,
    Text(&'a str),
    Number(i64),
    Flag(bool),
}

pub(crate) trait TableWriter {
    /// Adds a row with a cell for each column.
    fn row(&mut self, cells: &[TableCell<'_>]) -> io::Result<()>;

    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl<'a> From<&'a str> for TableCell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for TableCell<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for TableCell<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for TableCell<'_> {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for TableCell<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for TableCell<'_> {
    fn from(number: usize) -> Self {
        (number as u64).into()
    }
}

impl From<bool> for TableCell<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<'a, T: Into<TableCell<'a>>> From<Option<T>> for TableCell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
