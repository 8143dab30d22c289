//! Recordings that other programs made: PyTorch's memory snapshots.
//!
//! Reads their files into [`SnapshotData`], so that every analysis and export works on them.

mod pickle;
mod pytorch;

use std::fs;
use std::path::Path;

pub(crate) use self::pickle::begins_like_pickle;
use crate::error::Error;
use crate::snapshot::SnapshotData;
use crate::unpack::unpacked;

/// Larger pickles are not unpacked.
const MOST_UNPACKED: u64 = 4 << 30;
/// Bytes of a snapshot in a byte of its compressed file, for the limits of memory; real ones have seven.
const MOST_PACKED: usize = 32;
/// How a pickle of protocol 2 and later begins.
pub(crate) const PICKLE_MAGIC: &[u8] = &[0x80];

/// Reads a PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`), also one that is compressed with gzip.
///
/// Nothing in the pickle is executed: opcodes that import or call anything are refused. What the snapshot does not say is in
/// [`Health::import_notes`](crate::snapshot::Health::import_notes).
///
/// # Errors
/// If the file cannot be read, or is no snapshot; says where and what is wrong with it.
pub fn read_pytorch(path: impl AsRef<Path>) -> Result<SnapshotData, Error> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|error| Error::input(path, error))?;
    let packed = bytes.len();
    let bytes = unpacked(bytes, &[PICKLE_MAGIC], MOST_UNPACKED).map_err(Error::pytorch);
    bytes.and_then(|bytes| parse_packed(&bytes, packed)).map_err(|error| error.at(path))
}

/// [`read_pytorch`] for bytes that came from elsewhere.
///
/// # Errors
/// If they are no snapshot; says where and what is wrong with it.
pub fn parse_pytorch(bytes: &[u8]) -> Result<SnapshotData, Error> {
    parse_packed(bytes, bytes.len())
}

/// Parses the content of a file of `packed` bytes: its memory is in proportion to these.
pub(crate) fn parse_packed(bytes: &[u8], packed: usize) -> Result<SnapshotData, Error> {
    let length = bytes.len().min(packed.saturating_mul(MOST_PACKED));
    pytorch::read(bytes, length).map_err(|refusal| Error::pytorch(refusal.to_string()))
}
