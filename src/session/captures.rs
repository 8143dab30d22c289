//! Opening recordings.

use std::path::Path;

use memtrace_core::ReadOptions;

use super::outputs::Snapshot;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::{Leaves, own};

impl Leaves for Snapshot {}

/// Reads a recording: a capture that [`Snapshot::write`] wrote, a capture that [`Builder::stream`] has written so far,
/// or a PyTorch memory snapshot. The program that streams may have been killed.
/// [`SnapshotData::health`](crate::SnapshotData::health) says what could not be read.
///
/// A streamed capture contains only addresses. This function resolves them to functions and lines, using the program's
/// file and its libraries. Their build-ids must still be the same.
///
/// # Errors
/// If the file cannot be read, is no recording, or is damaged beyond use.
///
/// [`Builder::stream`]: crate::Builder::stream
pub fn open(path: impl AsRef<Path>) -> Result<Snapshot, Error> {
    let path = path.as_ref();
    own(|| Ok(Snapshot::of(Own::new(memtrace_core::open(path)?))))
}

impl Snapshot {
    /// [`open`] for bytes in memory.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        own(|| Ok(Self::of(Own::new(ReadOptions::default().parse(bytes)?))))
    }
}
