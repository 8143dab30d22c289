//! Baseline files: reading them, and changing them under a lock.

use std::fs::File;
use std::io;
use std::path::Path;

use memtrace_core::baseline::{BaselineEntry, Baselines};
use memtrace_core::export::file;

use crate::error::Error;
use crate::write_errors;

/// The largest accepted size of a baseline file or a list of peaks.
const LARGEST: u64 = 64 << 20;

pub(super) fn entries_of(path: &Path) -> Result<Baselines, Error> {
    let wrong = |reason| {
        let path = path.display();
        Error::wrong(format!(
            "cannot read the baselines of {path}: {reason}; correct the file, or delete it and create it anew"
        ))
    };
    Baselines::parse(&text_of(path)?).map_err(wrong)
}

/// A file's text; empty if the file does not exist.
pub(super) fn text_of(path: &Path) -> Result<String, Error> {
    match memtrace_core::input::text_of(path, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| Error::input(path, error)),
    }
}

/// Stores an entry under a lock, because other tests and other processes write to the same file.
pub(super) fn put(path: &Path, entry: BaselineEntry) -> Result<(), Error> {
    let _lock = lock(path)?;
    let mut entries = entries_of(path)?;
    entries.put(entry);
    let _limit = write_errors::errors_only();
    Ok(file::replace(path, entries.to_string().as_bytes())?)
}

/// Locks the file's folder against other processes until the result is dropped. Locking the folder needs no lock file.
pub(super) fn lock(file: &Path) -> Result<Option<File>, Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let locked = File::open(folder).and_then(|folder| wait_for(&folder).map(|()| folder));
    locked.map(Some).map_err(|error| Error::output(file, error))
}

/// Waits for the lock of a file, even if the program's signals interrupt the wait.
fn wait_for(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            locked => return locked,
        }
    }
}
