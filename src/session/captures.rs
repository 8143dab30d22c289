//! Captures: recordings read from files.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use super::collect::{SYMBOLS, learn_backward_pass, with_symbols};
use super::outputs::Snapshot;
use super::progress::Progress;
use super::unpack::{Wrong, unpacked};
use crate::capture::{self, Capture};
use crate::error::Error;
use crate::record::guard::Own;
use crate::snapshot::{SnapshotData, Stacks};
use crate::symbol;

/// Reads a capture: one written by [`Snapshot::write_capture`], or one that [`Builder::stream`] has
/// written so far, also of a program that was killed. What could not be read is in
/// [`SnapshotData::health`].
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
    take(|| {
        let bytes = fs::read(path).map_err(|error| Error::input(path, error))?;
        let read = |bytes: Vec<u8>| capture::read(&bytes);
        unpacked(bytes, capture::MAGIC, MOST_UNPACKED).map_err(refused).and_then(read).map_err(|error| error.at(path))
    })
}

/// Larger captures are not unpacked: what is packed small may be anything.
const MOST_UNPACKED: u64 = 4 << 30;

fn refused(wrong: Wrong) -> Error {
    Error::capture(match wrong {
        Wrong::Begins => "it is packed and does not begin like one".to_owned(),
        Wrong::TooLarge => "it is packed and too large".to_owned(),
        Wrong::Read(error) => format!("it cannot be unpacked: {error}"),
    })
}

/// [`read_capture`] for bytes that came from elsewhere.
///
/// # Errors
/// If they are no capture, or damaged in a way that leaves nothing to trust.
pub fn parse_capture(bytes: &[u8]) -> Result<Snapshot, Error> {
    take(|| capture::read(bytes))
}

fn take(read: impl FnOnce() -> Result<Capture, Error>) -> Result<Snapshot, Error> {
    let data = Own::make(|| read().map(|capture| Cell::new(Some(symbolised(capture)))));
    match &*data {
        Ok(data) => Ok(Snapshot::take(|| data.take().unwrap_or_default())),
        Err(error) => Err(error.duplicate()),
    }
}

fn symbolised(capture: Capture) -> SnapshotData {
    let mut data = capture.data;
    if capture.symbolised {
        return data;
    }
    let addresses: Vec<u64> = data.stacks.addresses.iter().map(|address| address.address).collect();
    let stacks: Vec<Vec<u32>> = data.stacks.each_calls().skip(1).map(<[u32]>::to_vec).collect();
    let mut progress = Progress::of(SYMBOLS, addresses.len() as u64);
    let symbols = symbol::symbolise_files(&addresses, std::mem::take(&mut data.modules), || progress.add(1));
    let (stacks, modules): (Stacks, _) = with_symbols(&stacks, symbols, data.settings.stacks, &mut data.health);
    (data.stacks, data.modules) = (stacks, modules);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data
}
