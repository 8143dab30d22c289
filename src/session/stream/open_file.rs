//! The open file of a streamed capture, protected from a program that closes descriptors that are not its own.
//!
//! If memtrace has no descriptor table of its own (`session/apart`), a program may close every descriptor it finds, as
//! daemons do, and then open other files under the same numbers. So before each use of its descriptor, memtrace checks
//! that it still leads to the same device and inode. If the program closed the descriptor, memtrace opens the file
//! again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use self::system::{again, identity, is_linked, move_up, write_at};
use crate::write_errors;

/// Device and inode; zeros on systems without them.
pub(super) type FileIdentity = (u64, u64);

#[derive(Debug)]
pub(super) struct OpenFile {
    path: Arc<Path>,
    /// Closed when this value is dropped, but only if the descriptor still belongs to this file.
    file: ManuallyDrop<File>,
    identity: FileIdentity,
}

impl OpenFile {
    pub(super) fn create(path: Arc<Path>) -> io::Result<Self> {
        let file = move_up(OpenOptions::new().write(true).create_new(true).open(&path)?);
        claim(&file);
        let identity = identity(&file)?;
        Ok(Self { path, file: ManuallyDrop::new(file), identity })
    }

    pub(super) fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Appends to the file, which must have this length.
    pub(super) fn append(&mut self, bytes: &[u8], length: u64) -> io::Result<()> {
        self.ensure_ours()?;
        self.ensure_whole(length)?;
        let _limit = write_errors::errors_only();
        write_at(&self.file, bytes, length)
    }

    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.ensure_ours()?;
        // Never extend the file, because this would hide that somebody else truncated it.
        let is_longer = self.file.metadata()?.len() > length;
        if is_longer { self.file.set_len(length) } else { Ok(()) }
    }

    pub(super) fn end(&mut self, length: u64) -> io::Result<()> {
        self.ensure_ours()?;
        self.ensure_whole(length)?;
        self.file.sync_data()?;
        match is_linked(&self.file)? {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "the file was deleted")),
        }
    }

    /// A capture that lost its beginning cannot be read, so nothing more is appended to it.
    fn ensure_whole(&self, length: u64) -> io::Result<()> {
        if self.file.metadata()?.len() < length { Err(io::Error::other("the file was truncated")) } else { Ok(()) }
    }

    fn is_ours(&self) -> bool {
        identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }

    /// Opens the file again if the descriptor is no longer this file's.
    fn ensure_ours(&mut self) -> io::Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        let closed = |error: io::Error| {
            let message = format!("the program closed its descriptor, and the file cannot be opened again: {error}");
            io::Error::new(error.kind(), message)
        };
        let file = move_up(again(&self.path).map_err(closed)?);
        if identity(&file)? != self.identity {
            return Err(closed(io::Error::other("another file has its name now")));
        }
        claim(&file);
        // The old descriptor is closed or belongs to somebody else, so it must not be closed here.
        self.file = ManuallyDrop::new(file);
        Ok(())
    }
}

/// Deletes the file at this path if it has this identity. False if the file is still there.
pub(super) fn remove(path: &Path, identity: FileIdentity) -> bool {
    match system::identity_at(path) {
        Ok(found) if found == identity => fs::remove_file(path).is_ok(),
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Locks the file as long as this process writes it, so that nobody replaces or removes it meanwhile.
fn claim(file: &File) {
    // Some file systems have no locks; there, readers rely on the end mark.
    let _ = file.try_lock();
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_ours() {
            system::close(&mut self.file);
        }
    }
}

#[cfg(unix)]
mod system {
    #![expect(unsafe_code, reason = "`fcntl` moves a descriptor to a high number")]

    use std::fs::{File, OpenOptions};
    use std::io;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    /// Programs rarely use descriptors this high. If a program closes memtrace's descriptor, the next file that it
    /// opens gets a lower number.
    const LOWEST: libc::c_int = 700;

    /// Opens an existing file for writing. It does not follow a link, and does not wait if a pipe has the file's name.
    pub(super) fn again(path: &Path) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        OpenOptions::new().write(true).custom_flags(flags).open(path)
    }

    pub(super) fn identity(file: &File) -> io::Result<super::FileIdentity> {
        file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// The identity of the file that has this name.
    pub(super) fn identity_at(path: &Path) -> io::Result<super::FileIdentity> {
        path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// Whether the file still has a name.
    pub(super) fn is_linked(file: &File) -> io::Result<bool> {
        file.metadata().map(|metadata| metadata.nlink() > 0)
    }

    /// Moves the descriptor to a high number, if one is free.
    pub(super) fn move_up(file: File) -> File {
        // SAFETY: it duplicates an open descriptor and touches nothing else.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) };
        // SAFETY: nothing else owns the new descriptor.
        if copy < 0 { file } else { unsafe { File::from_raw_fd(copy) } }
    }

    pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    pub(super) fn close(file: &mut ManuallyDrop<File>) {
        // SAFETY: called once, when the owner is dropped.
        unsafe { ManuallyDrop::drop(file) };
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{File, OpenOptions};
    use std::io::{self, Seek, SeekFrom, Write};
    use std::mem::ManuallyDrop;
    use std::path::Path;

    pub(super) fn again(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).open(path)
    }

    pub(super) fn identity(_file: &File) -> io::Result<super::FileIdentity> {
        Ok((0, 0))
    }

    pub(super) fn identity_at(path: &Path) -> io::Result<super::FileIdentity> {
        path.symlink_metadata().map(|_| (0, 0))
    }

    pub(super) fn is_linked(_file: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn move_up(file: File) -> File {
        file
    }

    pub(super) fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    pub(super) fn close(_file: &mut ManuallyDrop<File>) {}
}
