//! Captures: recordings read from files.

use std::path::Path;

use super::outputs::Snapshot;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::{Leaves, own};

impl Leaves for Snapshot {}

/// Reads a capture: one written by [`Snapshot::write`], or one that [`Builder::stream`] has
/// written so far, also of a program that was killed. What could not be read is in
/// [`SnapshotData::health`](crate::SnapshotData::health).
///
/// A streamed capture has only addresses. They get functions and lines here, from the program's file
/// and its libraries, as long as those are still the same by their build-ids.
///
/// # Errors
/// If the file cannot be read, is no capture, or is damaged in a way that leaves nothing to trust.
///
/// [`Builder::stream`]: crate::Builder::stream
pub fn read_capture(path: impl AsRef<Path>) -> Result<Snapshot, Error> {
    let path = path.as_ref();
    own(|| Ok(Snapshot::of(Own::new(memtrace_core::read_capture(path, |_, _| {})?))))
}

/// [`read_capture`] for bytes that came from elsewhere.
///
/// # Errors
/// If they are no capture, or damaged in a way that leaves nothing to trust.
pub fn parse_capture(bytes: &[u8]) -> Result<Snapshot, Error> {
    own(|| Ok(Snapshot::of(Own::new(memtrace_core::parse_capture(bytes, |_, _| {})?))))
}
