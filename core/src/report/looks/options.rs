//! What the live view shows, and how.

use crate::analysis::{Key, LookOrder, Looks};

/// A file that is watched.
#[derive(Clone, Debug, Default)]
pub struct WatchedFile {
    /// Its file name.
    pub file: String,
    /// The figures read from it; `None` until it was read.
    pub looks: Option<Looks>,
    /// Why the last read failed.
    pub problem: Option<String>,
    /// True if no process writes it any more.
    pub has_ended: bool,
}

/// What the live view shows of the files.
#[derive(Clone, Debug, Default)]
pub struct LookOptions {
    /// The key of the rows.
    pub by: Key,
    /// The order of the rows.
    pub order: LookOrder,
    /// Shows only rows with this text in their labels, ignoring case.
    pub filter: String,
    /// The rank whose rows are shown.
    pub chosen: usize,
    /// The most rows of a table of ranks.
    pub ranks: usize,
    /// The most rows of a table of a device.
    pub rows: usize,
    /// Characters per line; a narrow view has fewer columns.
    pub width: usize,
}

/// The widths from which on a row shows two figures, and all figures.
pub(super) const ROOM: [usize; 2] = [50, 76];

/// `12.345 s`
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.3} s", crate::units::seconds(ns))
}
