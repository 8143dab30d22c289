//! The file of a streamed capture. memtrace's thread for files, if there is one, does everything with the file's
//! descriptor.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::open_file::{self, OpenFile};
use crate::session::apart::{self, FileThread};

#[derive(Debug)]
pub(super) struct StreamFile {
    path: Arc<Path>,
    length: u64,
    /// `None` if the thread ended and took the file with it.
    open: Option<OpenFile>,
    thread: Option<Arc<FileThread>>,
}

impl StreamFile {
    /// Creates the file.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // The program may change its working directory.
        let path: Arc<Path> = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into();
        let thread = apart::thread();
        let created = Arc::clone(&path);
        let create = move || OpenFile::create(created);
        let open = apart::on(thread.as_deref(), create).ok_or_else(lost)??;
        Ok(Self { path, length: 0, open: Some(open), thread })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends the bytes, and clears them.
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let (length, owned) = (self.length, std::mem::take(bytes));
        let (owned, outcome) = self.with(move |file| {
            let outcome = file.append(&owned, length);
            (owned, outcome)
        })?;
        outcome?;
        self.length += owned.len() as u64;
        *bytes = owned;
        bytes.clear();
        Ok(())
    }

    /// Shortens the file to this length.
    pub(super) fn truncate(&mut self, length: u64) {
        self.length = length;
        let _ = self.with(move |file| file.truncate(length));
    }

    /// Deletes the file, unless another file has its name by now. False if it cannot be deleted.
    pub(super) fn remove(&self) -> bool {
        let Some(open) = &self.open else { return false };
        let (path, identity) = (Arc::clone(&self.path), open.identity());
        apart::on(self.thread.as_deref(), move || open_file::remove(&path, identity)).unwrap_or(false)
    }

    /// Syncs the file to disk; an error if it was deleted or truncated.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let length = self.length;
        self.with(move |file| file.end(length))?
    }

    fn with<T: Send + 'static>(&mut self, work: impl FnOnce(&mut OpenFile) -> T + Send + 'static) -> io::Result<T> {
        let mut open = self.open.take().ok_or_else(lost)?;
        let work = move || (work(&mut open), open);
        let (outcome, open) = apart::on(self.thread.as_deref(), work).ok_or_else(lost)?;
        self.open = Some(open);
        Ok(outcome)
    }
}

fn lost() -> io::Error {
    io::Error::other("memtrace's thread for files has ended")
}

impl Drop for StreamFile {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = apart::on(self.thread.as_deref(), move || drop(open));
        }
    }
}
