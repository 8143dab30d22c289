//! Reading captures.

use std::path::Path;

use super::outputs::Snapshot;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::{Leaves, own};

impl Leaves for Snapshot {}

/// Reads a capture: one written by [`Snapshot::write`], or one that [`Builder::stream`] has written so far, also of a
/// program that was killed. [`SnapshotData::health`](crate::SnapshotData::health) says what could not be read.
///
/// A streamed capture holds only addresses. This resolves them to functions and lines from the program's file and its
/// libraries, as long as their build-ids are still the same.
///
/// # Errors
/// If the file cannot be read, is no capture, or is damaged beyond use.
///
/// [`Builder::stream`]: crate::Builder::stream
pub fn read_capture(path: impl AsRef<Path>) -> Result<Snapshot, Error> {
    let path = path.as_ref();
    own(|| Ok(Snapshot::of(Own::new(memtrace_core::read_capture(path, |_, _| {})?))))
}

/// [`read_capture`] for bytes in memory.
///
/// # Errors
/// If they are no capture, or damaged beyond use.
pub fn parse_capture(bytes: &[u8]) -> Result<Snapshot, Error> {
    own(|| Ok(Snapshot::of(Own::new(memtrace_core::parse_capture(bytes, |_, _| {})?))))
}
