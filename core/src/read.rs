//! Recordings and series of operators, read from files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::analysis::OperatorSeries;
use crate::attribute::learn_backward_pass;
use crate::capture::{self, DecodedCapture};
use crate::error::Error;
use crate::export::parse_operators;
use crate::snapshot::SnapshotData;
use crate::symbol::{symbolise_files, with_symbols};
use crate::unpack::{Wrong, unpacked};

/// Larger captures are not unpacked: what is packed small may be anything.
const MOST_UNPACKED: u64 = 4 << 30;
/// Larger series are not read: twice what is written.
const LARGEST: u64 = 512 << 20;

/// Reads a capture: a whole one, or one that a program has streamed so far, also one that was killed. What could not be read
/// is in [`SnapshotData::health`].
///
/// A streamed capture has only addresses. They get functions and lines here, from the program's file and its libraries, as
/// long as those are still the same by their build-ids. `progress` is called after each one, with how many are done, and all.
///
/// # Errors
/// If the file cannot be read, is no capture, or is damaged in a way that leaves nothing to trust.
pub fn read_capture(path: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<SnapshotData, Error> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|error| Error::input(path, error))?;
    let refused = |wrong: Wrong| Error::capture(wrong.text());
    let read = |bytes: Vec<u8>| parse_capture(&bytes, progress);
    unpacked(bytes, capture::MAGIC, MOST_UNPACKED).map_err(refused).and_then(read).map_err(|error| error.at(path))
}

/// [`read_capture`] for bytes that came from elsewhere.
///
/// # Errors
/// If they are no capture, or damaged in a way that leaves nothing to trust.
pub fn parse_capture(bytes: &[u8], progress: impl FnMut(u64, u64)) -> Result<SnapshotData, Error> {
    capture::read(bytes).map(|capture| symbolised(capture, progress))
}

fn symbolised(capture: DecodedCapture, mut progress: impl FnMut(u64, u64)) -> SnapshotData {
    let mut data = capture.data;
    if capture.symbolised {
        return data;
    }
    let addresses: Vec<u64> = data.stacks.addresses.iter().map(|address| address.address).collect();
    let stacks: Vec<Vec<u32>> = data.stacks.each_calls().skip(1).map(<[u32]>::to_vec).collect();
    let (mut done, all) = (0, addresses.len() as u64);
    let symbols = symbolise_files(&addresses, std::mem::take(&mut data.objects), || {
        done += 1;
        progress(done, all);
    });
    (data.stacks, data.objects) = with_symbols(&stacks, symbols, &data.settings, &mut data.health);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data
}

/// Reads a series of operator calls that was written as `.operators.json`, also compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (unpacked), or is no series; says what is wrong with it.
pub fn read_operators(path: impl AsRef<Path>) -> Result<OperatorSeries, Error> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| Error::input(path, error))?;
    bytes(file).and_then(|bytes| parse_operators(&bytes)).map_err(|error| error.at(path))
}

fn bytes(file: File) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match file.take(LARGEST + 1).read_to_end(&mut bytes) {
        Ok(length) if length as u64 > LARGEST => Err(Error::operators("it is too large".to_owned())),
        Ok(_) => unpacked(bytes, b"{", LARGEST).map_err(|wrong| Error::operators(wrong.text())),
        Err(error) => Err(Error::operators(format!("it cannot be read: {error}"))),
    }
}
