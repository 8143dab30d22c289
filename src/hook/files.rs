//! Files that the program names to a hooked function. The session reads them, because hooks must not open files
//! (invariant 19).

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

/// The first registration wins.
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
    /// `None` for a file that is not to be read.
    pub(crate) fn now(path: &'a CStr) -> Option<Self> {
        let (_own, _errno) = (guard::own_work(), KeepErrno::new());
        let reader = *READER.get()?;
        Some(Self { path, mark: (reader.mark)(path)?, reader })
    }

    /// `None` also if the file was changed meanwhile.
    pub(crate) fn read(self) -> Option<PageVec<u8>> {
        let (_own, _errno) = (guard::own_work(), KeepErrno::new());
        (self.reader.read)(self.path, self.mark)
    }
}
