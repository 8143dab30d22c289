//! What is shown, and how.

use crate::analysis::{Key, LookOrder, Looks};

/// A file that is watched.
#[derive(Clone, Debug, Default)]
pub struct WatchedFile {
    /// Its name.
    pub file: String,
    /// What was seen of it; `None` until it has been read.
    pub looks: Option<Looks>,
    /// Why it could not be read the last time.
    pub problem: Option<String>,
    /// Nobody writes it any more.
    pub has_ended: bool,
}

/// What of it is shown.
#[derive(Clone, Debug, Default)]
pub struct LookOptions {
    /// What the rows stand for.
    pub by: Key,
    /// The order of the rows.
    pub order: LookOrder,
    /// Only rows with this text in their labels, in whatever case.
    pub filter: String,
    /// The rank whose rows are shown.
    pub chosen: usize,
    /// The most rows of a table of ranks.
    pub ranks: usize,
    /// The most rows of a table of a device.
    pub rows: usize,
    /// Characters in a line: narrow pictures have fewer columns.
    pub width: usize,
}

/// Characters from which on a picture shows two figures of a row, and all.
pub(super) const ROOM: [usize; 2] = [50, 76];

/// `12.345 s`
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.3} s", crate::units::seconds(ns))
}
