//! Recordings that other programs made: PyTorch's memory snapshots.
//!
//! Reads their files into [`SnapshotData`], so that every analysis and export works on them.

mod pickle;
mod pytorch;

use std::path::Path;

pub(crate) use self::pickle::begins_like_pickle;
use crate::error::Error;
use crate::input::{FileContent, Wanted};
use crate::snapshot::SnapshotData;

const WANTED: Wanted =
    Wanted { begins: begins_like_pickle, most: u64::MAX, most_unpacked: 4 << 30, refused: Error::pytorch };
/// Bytes of a snapshot in a byte of its compressed file, for the limits of memory; real ones have seven.
const MOST_PACKED: usize = 32;

/// Reads a PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`), also one that is compressed with gzip.
///
/// Nothing in the pickle is executed: opcodes that import or call anything are refused. What the snapshot does not say is in
/// [`Health::import_notes`](crate::snapshot::Health::import_notes).
///
/// # Errors
/// If the file cannot be read, or is no snapshot; says where and what is wrong with it.
pub fn read_pytorch(path: impl AsRef<Path>) -> Result<SnapshotData, Error> {
    let path = path.as_ref();
    let content = WANTED.read(path)?;
    parse_content(&content).map_err(|error| error.at(path))
}

/// [`read_pytorch`] for bytes that came from elsewhere.
///
/// # Errors
/// If they are no snapshot; says where and what is wrong with it.
pub fn parse_pytorch(bytes: &[u8]) -> Result<SnapshotData, Error> {
    parse_within(bytes, bytes.len())
}

/// Parses the content of a file: its memory is in proportion to the bytes that are stored.
pub(crate) fn parse_content(content: &FileContent) -> Result<SnapshotData, Error> {
    parse_within(&content.bytes, content.bytes.len().min(content.stored.saturating_mul(MOST_PACKED)))
}

fn parse_within(bytes: &[u8], length: usize) -> Result<SnapshotData, Error> {
    pytorch::read(bytes, length).map_err(|refusal| Error::pytorch(refusal.to_string()))
}
