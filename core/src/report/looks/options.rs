//! What the live view shows, and how.

use crate::analysis::{Key, LookOrder, Looks};

/// A file that is watched.
#[derive(Clone, Debug, Default)]
pub struct WatchedFile {
    /// The name of the file.
    pub file: String,
    /// The figures read from the file; `None` until it was read once.
    pub looks: Option<Looks>,
    /// Why the last read failed.
    pub problem: Option<String>,
    /// True if no process writes the file any more.
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
    /// The index of the file whose devices are shown.
    pub chosen: usize,
    /// The most rows of a table of ranks.
    pub ranks: usize,
    /// The most rows of a table of a device.
    pub rows: usize,
    /// Characters per line; a narrow view has fewer columns.
    pub width: usize,
}

/// From the first of these widths on, a row shows two figures; from
/// the second one on, all figures.
pub(super) const ROOM: [usize; 2] = [50, 76];

/// `12.345 s`
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.3} s", crate::units::seconds(ns))
}
