//! Columns and cells.

use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Number,
    /// A number that differs little from the number in the row before.
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
    /// All columns, with `run` as the first.
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

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl From<$number> for TableCell<'_> {
            fn from(number: $number) -> Self {
                Self::Number(number.try_into().unwrap_or(i64::MAX))
            }
        }
    )* };
}

numbers!(i64, u64, u32, usize);

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
