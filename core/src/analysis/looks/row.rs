//! The rows of a look, and their order.

use std::cmp::Reverse;

use crate::snapshot::words;

/// A row with its growth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookRow {
    /// The line, function, scope, name or other key.
    pub label: String,
    /// Live bytes; 0 for a row whose blocks have all been freed.
    pub bytes: u64,
    /// Number of live blocks; `None` if only the bytes are known.
    pub count: Option<u64>,
    /// Bytes now minus bytes at the look before; `None` if there is no earlier look by this key.
    pub since_last: Option<i64>,
    /// Bytes now minus bytes at the first look by this key; `None` if this is the first look.
    pub since_first: Option<i64>,
}

words! {
    /// The order of rows, largest first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LookOrder {
        /// Live bytes.
        #[default]
        Bytes = "bytes",
        /// Bytes now minus bytes at the first look.
        Growth = "growth",
        /// Live blocks.
        Count = "count",
    }
}

impl LookOrder {
    /// The next order; after the last one, the first.
    #[must_use]
    pub fn next(self) -> Self {
        let next = (self as usize + 1) % Self::ALL.len();
        Self::ALL.get(next).copied().unwrap_or_default()
    }

    /// Sorts rows. Equal rows are sorted by their bytes, then by label.
    pub(super) fn sort(self, rows: &mut [LookRow]) {
        let of = |row: &LookRow| match self {
            Self::Bytes => i128::from(row.bytes),
            Self::Growth => i128::from(row.since_first.unwrap_or(0)),
            Self::Count => i128::from(row.count.unwrap_or(0)),
        };
        rows.sort_by(|a, b| (Reverse((of(a), a.bytes)), &a.label).cmp(&(Reverse((of(b), b.bytes)), &b.label)));
    }
}
