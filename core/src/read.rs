//! File readers for captures and series of operator calls.

use std::io::Read;
use std::path::Path;

use crate::analysis::OperatorSeries;
use crate::attribute::learn_backward_pass;
use crate::capture::{self, DecodedCapture};
use crate::error::Error;
use crate::export::{file, parse_operators};
use crate::import::{begins_like_pickle, parse_content, parse_pytorch};
use crate::input::{Wanted, open_regular};
use crate::snapshot::SnapshotData;
use crate::symbol::{AddressKind, SymbolSources, Symbols, symbolise_files, with_symbols};

/// A capture, or a pickle.
const RECORDING: Wanted = Wanted {
    begins: |bytes| capture::begins_like_one(bytes) || begins_like_pickle(bytes),
    most: u64::MAX,
    most_unpacked: 4 << 30,
    refused: Error::capture,
};
/// Twice the default limit of its writer.
const SERIES: Wanted = Wanted {
    begins: |bytes| bytes.starts_with(b"{"),
    most: 512 << 20,
    most_unpacked: 512 << 20,
    refused: Error::operators,
};

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
    let content = RECORDING.read(path)?;
    let parsed = match begins_like_pickle(&content.bytes) {
        true => parse_content(&content),
        false => capture::read(&content.bytes).map(|capture| symbolised(capture, sources, progress)),
    };
    parsed.map_err(|error| error.at(path))
}

/// Whether a file is a capture, by its first bytes.
#[doc(hidden)]
pub fn is_capture(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(16).read_to_end(&mut head));
    read.is_ok() && capture::begins_like_one(&head)
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

fn symbolised(capture: DecodedCapture, sources: &SymbolSources, progress: impl FnMut(u64, u64)) -> SnapshotData {
    if capture.names.are_final() {
        return capture.data;
    }
    let symbols = symbols_of(&capture, sources, progress);
    let DecodedCapture { mut data, names, .. } = capture;
    let had_label = |(index, kind): (usize, &AddressKind)| !kind.unknown && names.has_label(index);
    if names.any && !names.all_calls && !symbols.kinds.iter().enumerate().any(had_label) {
        return data;
    }
    let stacks: Vec<Vec<u32>> = data.stacks.each_calls().skip(1).map(<[u32]>::to_vec).collect();
    (data.stacks, data.objects) = with_symbols(&stacks, symbols, &data.settings, &mut data.health);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data
}

/// The names that the capture has, and those that files have of its other addresses.
fn symbols_of(capture: &DecodedCapture, sources: &SymbolSources, mut progress: impl FnMut(u64, u64)) -> Symbols {
    let DecodedCapture { data, names, .. } = capture;
    let addresses: Vec<u64> = data.stacks.addresses.iter().map(|address| address.address).collect();
    let all = addresses.len() as u64;
    symbolise_files(&addresses, data.objects.clone(), sources, |index| {
        progress(index as u64 + 1, all);
        names.of(index, &data.stacks)
    })
}

/// Adds the names of functions to a streamed capture, because the next build replaces the program that has them. The file gets
/// them beside what it had; addresses without a name can still be resolved later. Nobody may be writing it.
///
/// # Errors
/// If the file cannot be read, is no capture of the process `pid`, or cannot be replaced; then it is as it was.
pub fn store_names(path: impl AsRef<Path>, pid: u32, progress: impl FnMut(u64, u64)) -> Result<(), Error> {
    let path = path.as_ref();
    let named = |bytes: &[u8]| {
        let capture = capture::read(bytes)?;
        if capture.data.process.pid != pid {
            return Err(Error::capture(format!("it is of process {}, not of {pid}", capture.data.process.pid)));
        }
        if capture.names.any {
            return Ok(None);
        }
        let symbols = symbols_of(&capture, &SymbolSources::default(), progress);
        capture::with_names(bytes, capture.commit, symbols).map(Some)
    };
    match named(&RECORDING.read(path)?.bytes).map_err(|error| error.at(path))? {
        Some(bytes) => file::replace(path, &bytes),
        None => Ok(()),
    }
}

/// Reads a series of operator calls from an `.operators.json` file, which may be compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (decompressed), or is not a series; the error names the field.
pub fn read_operators(path: impl AsRef<Path>) -> Result<OperatorSeries, Error> {
    let path = path.as_ref();
    parse_operators(&SERIES.read(path)?.bytes).map_err(|error| error.at(path))
}
