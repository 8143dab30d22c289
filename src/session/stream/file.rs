//! The file of a stream. The program may close every descriptor it finds, ours too, and then open others under the same
//! numbers: so each use of ours is preceded by a look at what it stands for.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use self::system::{Identity, far_up, identity, is_linked, write_at};
use crate::write_errors;

#[derive(Debug)]
pub(super) struct StreamFile {
    path: PathBuf,
    /// Closed only if it is still ours.
    file: ManuallyDrop<File>,
    identity: Identity,
    length: u64,
}

impl StreamFile {
    /// Makes a new file.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = far_up(OpenOptions::new().write(true).create_new(true).open(path)?);
        let identity = identity(&file)?;
        // The program may change its working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, file: ManuallyDrop::new(file), identity, length: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.ensure_ours()?;
        self.ensure_whole()?;
        let _limit = write_errors::errors_only();
        write_at(&self.file, bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Takes back what was appended after that length.
    pub(super) fn go_back(&mut self, length: u64) {
        self.length = length;
        // Never longer: who has made it shorter would not be noticed.
        let is_longer = |file: &File| file.metadata().is_ok_and(|metadata| metadata.len() > length);
        if self.ensure_ours().is_ok() && is_longer(&self.file) {
            let _ = self.file.set_len(length);
        }
    }

    /// Whatever was appended is there for good; an error if somebody has taken the file or a part of it away.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.ensure_ours()?;
        self.ensure_whole()?;
        self.file.sync_data()?;
        match is_linked(&self.file)? {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "somebody has deleted the file")),
        }
    }

    /// What is appended to a file without its beginning could not be read.
    fn ensure_whole(&self) -> io::Result<()> {
        match self.file.metadata()?.len() < self.length {
            true => Err(io::Error::other("somebody has made the file shorter")),
            false => Ok(()),
        }
    }

    fn is_ours(&self) -> bool {
        identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }

    /// Opens the file again if its descriptor is not ours any more.
    fn ensure_ours(&mut self) -> io::Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        let closed = |error: io::Error| {
            let message = format!("the program closed its descriptor, and it cannot be opened again: {error}");
            io::Error::new(error.kind(), message)
        };
        let file = far_up(OpenOptions::new().write(true).open(&self.path).map_err(closed)?);
        if identity(&file)? != self.identity {
            return Err(closed(io::Error::other("another file is in its place")));
        }
        // The one before is somebody else's now, or nobody's: it is forgotten, not closed.
        self.file = ManuallyDrop::new(file);
        Ok(())
    }
}

impl Drop for StreamFile {
    fn drop(&mut self) {
        if self.is_ours() {
            system::close(&mut self.file);
        }
    }
}

#[cfg(unix)]
mod system {
    #![expect(unsafe_code, reason = "a descriptor with a high number is had from a C function")]

    use std::fs::File;
    use std::io;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::{FileExt, MetadataExt};

    /// Device and inode.
    pub(super) type Identity = (u64, u64);

    /// Numbers that programs hardly come to: what closes ours and opens another file gets a lower one.
    const FAR_UP: libc::c_int = 700;

    pub(super) fn identity(file: &File) -> io::Result<Identity> {
        file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// Does it have a name?
    pub(super) fn is_linked(file: &File) -> io::Result<bool> {
        file.metadata().map(|metadata| metadata.nlink() > 0)
    }

    /// The same file under a high number, if there is one.
    pub(super) fn far_up(file: File) -> File {
        // SAFETY: it makes a new descriptor of one that is open, and touches nothing else.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FAR_UP) };
        // SAFETY: a descriptor that was just made belongs to nobody else.
        if copy < 0 { file } else { unsafe { File::from_raw_fd(copy) } }
    }

    pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    pub(super) fn close(file: &mut ManuallyDrop<File>) {
        // SAFETY: called once, when the file's owner is dropped.
        unsafe { ManuallyDrop::drop(file) };
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::File;
    use std::io::{self, Seek, SeekFrom, Write};
    use std::mem::ManuallyDrop;

    pub(super) type Identity = ();

    pub(super) fn identity(_file: &File) -> io::Result<Identity> {
        Ok(())
    }

    pub(super) fn is_linked(_file: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn far_up(file: File) -> File {
        file
    }

    pub(super) fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    pub(super) fn close(_file: &mut ManuallyDrop<File>) {}
}
