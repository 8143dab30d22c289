//! Readers of recordings: they read memtrace's captures and the files of other programs as [`SnapshotData`], so that
//! every analysis and export works on all of them.

mod capture;
#[cfg(test)]
mod frozen_tests;
mod parts;
mod pickle;
mod pytorch;

use std::path::Path;

pub use capture::store_names;
#[doc(hidden)]
pub use capture::{has_ended, is_capture};
#[doc(hidden)]
pub use parts::{is_one_of_several, parts_of};

use self::parts::PartedStream;
use crate::error::Error;
use crate::input::{Wanted, kind_of};
use crate::snapshot::SnapshotData;
use crate::symbol::{FoundNames, SymbolSources};

/// To add a format, add a file with its reader to this folder, and a row here.
static READERS: &[Reader] = &[capture::READER, pytorch::READER];

/// A format that is read as a recording.
struct Reader {
    /// Its name in errors, with an article.
    name: &'static str,
    /// What writes such files. Errors name it as the next step.
    written_by: &'static str,
    /// The files of the format, as the help names them.
    files: &'static str,
    /// Whether a file of the format begins with these bytes.
    begins: fn(&[u8]) -> bool,
    /// Reads the content of a file, or says why it cannot. The number is the length of the file in bytes, before
    /// decompression.
    parse: fn(&[u8], usize, ReadOptions<'_>) -> Result<SnapshotData, String>,
}

impl Reader {
    fn of(bytes: &[u8]) -> Option<&'static Self> {
        READERS.iter().find(|reader| (reader.begins)(bytes))
    }

    fn refused(&self, reason: String) -> Error {
        Error::parse(self.name, reason, self.written_by)
    }
}

const RECORDING: Wanted = Wanted {
    begins: |bytes| Reader::of(bytes).is_some(),
    most: u64::MAX,
    most_unpacked: 4 << 30,
    refused: |reason| {
        let written_by: Vec<&str> = READERS.iter().map(|reader| reader.written_by).collect();
        Error::parse("a recording", reason, written_by.join("; "))
    },
};

/// Reads a recording: a capture or a PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`), also one that is
/// compressed with gzip. A capture may be whole, or what a running or killed program has streamed so far. The first
/// bytes of the file determine its format. [`SnapshotData::health`] says what could not be read, and what another
/// program's file does not contain.
///
/// A stream with a budget consists of several files, its parts. They are read as one recording, whichever of them
/// `path` names.
///
/// A streamed capture has only addresses, no names of functions. The addresses are symbolized with the files of the
/// program and its libraries, if the build-ids still match. [`ReadOptions`] can name more places for those files.
///
/// Nothing in a pickle is executed: opcodes that import or call anything are refused.
///
/// # Errors
/// If the file cannot be read, is not a recording, or is damaged (for a capture: before its first commit).
pub fn open(path: impl AsRef<Path>) -> Result<SnapshotData, Error> {
    ReadOptions::default().open(path)
}

/// Options for reading a recording.
///
/// ```no_run
/// use memtrace_core::ReadOptions;
/// use memtrace_core::symbol::SymbolSources;
///
/// let sources = SymbolSources { debug_dirs: vec!["debug".into()], ..SymbolSources::default() };
/// let data = ReadOptions::default().sources(sources).open("run.memtrace")?;
/// # Ok::<(), memtrace_core::Error>(())
/// ```
#[derive(Default)]
pub struct ReadOptions<'a> {
    sources: SymbolSources,
    found: Option<&'a mut FoundNames>,
    progress: Option<Box<dyn FnMut(u64, u64) + 'a>>,
}

impl<'a> ReadOptions<'a> {
    /// Adds places where the files of the program and its libraries are searched.
    #[must_use]
    pub fn sources(self, sources: SymbolSources) -> Self {
        Self { sources, ..self }
    }

    /// Reuses the names of an earlier reading of the same capture, which may have grown since. Files are searched only
    /// for addresses that have no name yet.
    #[must_use]
    pub fn found(self, found: &'a mut FoundNames) -> Self {
        Self { found: Some(found), ..self }
    }

    /// Calls `progress` after each symbolized address, with the numbers of finished addresses and of all addresses.
    #[must_use]
    pub fn progress(self, progress: impl FnMut(u64, u64) + 'a) -> Self {
        Self { progress: Some(Box::new(progress)), ..self }
    }

    /// [`open`] with these options.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<SnapshotData, Error> {
        let path = path.as_ref();
        if let Some(stream) = PartedStream::of(path) {
            return capture::open_parts(&stream, self).map_err(|error| error.at(path));
        }
        let content = RECORDING.read(path)?;
        self.parsed(&content.bytes, content.stored).map_err(|error| error.at(path))
    }

    /// [`open`] for uncompressed bytes in memory.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn parse(self, bytes: &[u8]) -> Result<SnapshotData, Error> {
        self.parsed(bytes, bytes.len())
    }

    fn parsed(self, bytes: &[u8], stored: usize) -> Result<SnapshotData, Error> {
        let unknown = || (RECORDING.refused)(kind_of(bytes).unwrap_or("it does not begin like one").to_owned());
        let reader = Reader::of(bytes).ok_or_else(unknown)?;
        (reader.parse)(bytes, stored, self).map_err(|reason| reader.refused(reason))
    }
}

/// The formats that can be read, for the help of a command.
#[doc(hidden)]
pub fn readable() -> String {
    READERS.iter().map(|reader| reader.files).collect::<Vec<_>>().join(", ")
}
