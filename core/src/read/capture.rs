//! Reads captures and resolves their addresses with the program's files, and adds names to captures.

use std::io::Read;
use std::path::Path;

use super::parts::{PartedStream, parts_of};
use super::{RECORDING, ReadOptions, Reader};
use crate::attribute::learn_backward_pass;
use crate::capture::{self, DecodedCapture};
use crate::error::Error;
use crate::export::file;
use crate::input::open_regular;
use crate::snapshot::SnapshotData;
use crate::symbol::{AddressKind, FoundNames, Symbols, symbolise_files, with_symbols};

pub(super) const READER: Reader = Reader {
    name: "a memtrace capture",
    written_by: "captures are written by `cargo memtrace run`, `Snapshot::write` and `Builder::stream`",
    files: "a capture (.memtrace), a folder with one",
    begins: capture::begins_like_one,
    parse: |bytes, _, options| Ok(symbolised(capture::read(bytes)?, options)),
};

/// Whether a file is a capture, judged by its first bytes.
#[doc(hidden)]
pub fn is_capture(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(16).read_to_end(&mut head));
    read.is_ok() && capture::begins_like_one(&head)
}

/// Whether a capture has its end mark, which its writer adds when it has finished. Reads only the heads of the chunks.
#[doc(hidden)]
pub fn has_ended(path: &Path) -> bool {
    open_regular(path).and_then(capture::has_end).unwrap_or(false)
}

/// Reads a stream in parts.
pub(super) fn open_parts(stream: &PartedStream, options: ReadOptions<'_>) -> Result<SnapshotData, Error> {
    let bytes = |path: &Path| Ok(RECORDING.read(path)?.bytes);
    let (newest, older) = stream.read(bytes)?;
    let read = capture::read_parts(&newest, stream.older(older, bytes)).map_err(|reason| READER.refused(reason))?;
    Ok(symbolised(read, options))
}

fn symbolised(capture: DecodedCapture, options: ReadOptions<'_>) -> SnapshotData {
    if capture.names.are_final() {
        return capture.data;
    }
    let symbols = symbols_of(&capture, options);
    let DecodedCapture { mut data, names, .. } = capture;
    let had_label = |(index, kind): (usize, &AddressKind)| !kind.unknown && names.kind(index).unknown;
    if names.any && !names.all_calls && !symbols.kinds.iter().enumerate().any(had_label) {
        return data;
    }
    let stacks: Vec<Vec<u32>> = data.stacks.each_calls().skip(1).map(<[u32]>::to_vec).collect();
    (data.stacks, data.objects) = with_symbols(&stacks, symbols, &data.settings, &mut data.health);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data
}

/// The names that the capture has. Its other addresses get the names that the files of the program have.
fn symbols_of(capture: &DecodedCapture, ReadOptions { sources, found, mut progress }: ReadOptions<'_>) -> Symbols {
    let DecodedCapture { data, names, .. } = capture;
    let addresses: Vec<u64> = data.stacks.addresses.iter().map(|address| address.address).collect();
    let all = addresses.len() as u64;
    let mut none = FoundNames::default();
    symbolise_files(&addresses, data.objects.clone(), &sources, found.unwrap_or(&mut none), |index| {
        if let Some(progress) = &mut progress {
            progress(index as u64 + 1, all);
        }
        names.of(index, &data.stacks)
    })
}

/// Adds the names of functions to a streamed capture, because the next build replaces the program that has them. The
/// rest of the file stays the same, and addresses without a name can still be resolved later. No process may be writing
/// the file.
///
/// # Errors
/// If the file cannot be read, is not a capture of the process `pid`, or cannot be replaced. Then it is unchanged.
pub fn store_names(path: impl AsRef<Path>, pid: u32, mut progress: impl FnMut(u64, u64)) -> Result<(), Error> {
    let path = path.as_ref();
    match &parts_of(path)[..] {
        [] => store_names_of(path, pid, progress),
        parts => parts.iter().try_for_each(|part| store_names_of(part, pid, &mut progress)),
    }
}

fn store_names_of(path: &Path, pid: u32, progress: impl FnMut(u64, u64)) -> Result<(), Error> {
    let named = |bytes: &[u8]| {
        let capture = capture::read(bytes).map_err(|reason| READER.refused(reason))?;
        if capture.data.process.pid != pid {
            return Err(READER.refused(format!("it is of process {}, not of {pid}", capture.data.process.pid)));
        }
        if capture.names.any {
            return Ok(None);
        }
        let symbols = symbols_of(&capture, ReadOptions::default().progress(progress));
        capture::with_names(bytes, capture.commit, symbols).map(Some)
    };
    match named(&RECORDING.read(path)?.bytes).map_err(|error| error.at(path))? {
        Some(bytes) => file::replace(path, &bytes),
        None => Ok(()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::read::open;
    use crate::snapshot::{LoadedObject, Process, StackId};
    use crate::symbol::SymbolSources;

    /// A capture of this process with a single stack in this function, and without the file that has its name.
    #[test]
    fn a_label_becomes_a_name_as_soon_as_its_file_is_there() {
        let program = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy())).unwrap();
        let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let here = a_label_becomes_a_name_as_soon_as_its_file_is_there as fn() as usize as u64 + 1;
        let Some(build_id) = crate::symbol::build_id(&program) else { return };
        let object = LoadedObject { path: Some("/gone".into()), build_id, base, range: base..base + (1 << 30) };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrace");
        let mut file = capture::Encoder::begin(Vec::new()).unwrap();
        file.process(&Process { pid: 7, ..Process::default() }).unwrap();
        file.objects(std::slice::from_ref(&object)).unwrap();
        file.addresses([here].into_iter()).unwrap();
        file.stacks([&[0][..]].into_iter()).unwrap();
        file.commit(&capture::Commit::default()).unwrap();
        std::fs::write(&path, &mut *file.out()).unwrap();

        assert!(store_names(&path, 8, |_, _| {}).unwrap_err().to_string().contains("of process 7, not of 8"));
        store_names(&path, 7, |_, _| {}).unwrap();
        let sources = |binaries: &[&Path]| SymbolSources {
            binaries: binaries.iter().map(|path| path.to_path_buf()).collect(),
            ..SymbolSources::default()
        };
        let function = |path: &Path, sources: SymbolSources| {
            let data = ReadOptions::default().sources(sources).open(path).unwrap();
            let name = data.stacks.frames(StackId(1)).next().and_then(|frame| frame.function.clone());
            (name.unwrap_or_default(), data.health.unknown_addresses)
        };
        let (label, unknown) = function(&path, sources(&[]));
        assert!(label.starts_with("gone+0x") && unknown == 1, "{label}");
        let (name, unknown) = function(&path, sources(&[&program]));
        assert!(name.contains("a_label_becomes") && unknown == 0, "{name}");

        // The same for a capture that was written whole.
        let whole = folder.path().join("b.memtrace");
        let data = open(&path).unwrap();
        let mut bytes = Vec::new();
        capture::write(&data, usize::MAX, &mut bytes).unwrap();
        std::fs::write(&whole, bytes).unwrap();
        assert_eq!(function(&whole, sources(&[])), (label, 1));
        let (name, unknown) = function(&whole, sources(&[&program]));
        assert!(name.contains("a_label_becomes") && unknown == 0, "{name}");
    }
}
