//! Files whose names the program passes to a hooked function. The session reads these files, because hooks must
//! not open files (invariant 19).

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::errno::KeepErrno;
use crate::record::guard;
use crate::record::pages::PageVec;

/// Distinguishes a file from other files, and from its own earlier versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMark {
    pub(crate) device: u64,
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// Time of the last change, in seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
}

/// The functions that read files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileReader {
    /// Returns the mark of a file, if the file may be read.
    pub(crate) mark: fn(&CStr) -> Option<FileMark>,
    /// Returns the file's bytes, if it still has the mark.
    pub(crate) read: fn(&CStr, FileMark) -> Option<PageVec<u8>>,
}

/// Set by the first call of [`read_by`]. Later calls change nothing.
static READER: OnceLock<FileReader> = OnceLock::new();

pub(crate) fn read_by(reader: FileReader) {
    let _ = READER.set(reader);
}

/// A file as it was when the program named it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedFile<'a> {
    path: &'a CStr,
    mark: FileMark,
    reader: FileReader,
}

impl<'a> NamedFile<'a> {
    /// Remembers the current state of a file. `None` if the file may not be read, or if there is no reader yet.
    pub(crate) fn now(path: &'a CStr) -> Option<Self> {
        let (_own, _errno) = (guard::own_work(), KeepErrno::new());
        let reader = *READER.get()?;
        Some(Self { path, mark: (reader.mark)(path)?, reader })
    }

    /// The file's bytes. `None` if they cannot be read, or if the file was changed after the program named it.
    pub(crate) fn read(self) -> Option<PageVec<u8>> {
        let (_own, _errno) = (guard::own_work(), KeepErrno::new());
        (self.reader.read)(self.path, self.mark)
    }
}
