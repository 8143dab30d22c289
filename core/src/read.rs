//! File readers for captures and series of operator calls.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::analysis::OperatorSeries;
use crate::attribute::learn_backward_pass;
use crate::capture::{self, DecodedCapture};
use crate::error::Error;
use crate::export::parse_operators;
use crate::import::{PICKLE_MAGIC, begins_like_pickle, parse_packed, parse_pytorch};
use crate::snapshot::SnapshotData;
use crate::symbol::{SymbolSources, symbolise_files, with_symbols};
use crate::unpack::unpacked;

/// The most bytes of a decompressed capture.
const MOST_UNPACKED: u64 = 4 << 30;
/// The most bytes of a series: twice the default limit of its writer.
const LARGEST: u64 = 512 << 20;

/// Reads a capture: a whole one, or the part that a running or killed program has streamed so far. [`SnapshotData::health`] says
/// what could not be read.
///
/// A streamed capture has only addresses. The reader symbolizes them with the files of the program and its libraries, if their
/// build-ids still match. It calls `progress` after each address, with the number of finished addresses and of all.
///
/// A file that begins like a pickle is read as a PyTorch memory snapshot; see [`read_pytorch`](crate::read_pytorch).
///
/// # Errors
/// If the file cannot be read, is not a capture, or is damaged before its first commit.
pub fn read_capture(path: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<SnapshotData, Error> {
    read_capture_with(path, &SymbolSources::default(), progress)
}

/// [`read_capture`] with more places for the files of the program and its libraries.
///
/// # Errors
/// As those of [`read_capture`].
pub fn read_capture_with(
    path: impl AsRef<Path>,
    sources: &SymbolSources,
    progress: impl FnMut(u64, u64),
) -> Result<SnapshotData, Error> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|error| Error::input(path, error))?;
    let packed = bytes.len();
    let bytes = unpacked(bytes, &[capture::MAGIC, PICKLE_MAGIC], MOST_UNPACKED).map_err(Error::capture);
    let parsed = bytes.and_then(|bytes| match begins_like_pickle(&bytes) {
        true => parse_packed(&bytes, packed),
        false => capture::read(&bytes).map(|capture| symbolised(capture, sources, progress)),
    });
    parsed.map_err(|error| error.at(path))
}

/// [`read_capture`] for bytes in memory.
///
/// # Errors
/// If they are not a capture, or damaged before the first commit.
pub fn parse_capture(bytes: &[u8], progress: impl FnMut(u64, u64)) -> Result<SnapshotData, Error> {
    if begins_like_pickle(bytes) {
        return parse_pytorch(bytes);
    }
    capture::read(bytes).map(|capture| symbolised(capture, &SymbolSources::default(), progress))
}

fn symbolised(capture: DecodedCapture, sources: &SymbolSources, mut progress: impl FnMut(u64, u64)) -> SnapshotData {
    let mut data = capture.data;
    if capture.symbolised {
        return data;
    }
    let addresses: Vec<u64> = data.stacks.addresses.iter().map(|address| address.address).collect();
    let stacks: Vec<Vec<u32>> = data.stacks.each_calls().skip(1).map(<[u32]>::to_vec).collect();
    let (mut done, all) = (0, addresses.len() as u64);
    let symbols = symbolise_files(&addresses, std::mem::take(&mut data.objects), sources, || {
        done += 1;
        progress(done, all);
    });
    (data.stacks, data.objects) = with_symbols(&stacks, symbols, &data.settings, &mut data.health);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data
}

/// Reads a series of operator calls from an `.operators.json` file, which may be compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (decompressed), or is not a series; the error names the field.
pub fn read_operators(path: impl AsRef<Path>) -> Result<OperatorSeries, Error> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| Error::input(path, error))?;
    let bytes = if bytes.len() as u64 > LARGEST {
        Err("it is too large".to_owned())
    } else {
        unpacked(bytes, &[b"{"], LARGEST)
    };
    bytes.map_err(Error::operators).and_then(|bytes| parse_operators(&bytes)).map_err(|error| error.at(path))
}
