//! Shareable handles: memory as a file descriptor, which can be sent to other processes.
//!
//! The file has the memory's size and begins with a [`FileHeader`]. Unlike on a GPU, an open file does not keep the
//! memory alive.

use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const FILE: u32 = 1;

/// A mark of the simulator, the process that exported the memory, and the handle.
type FileHeader = [u64; 3];

const MARK: u64 = u64::from_le_bytes(*b"cusimmem");

pub(super) struct SharedFile {
    pub(super) size: u64,
    /// The handle, if this process exported it.
    pub(super) handle: Option<u64>,
}

pub(super) fn export(handle: u64, size: u64) -> Answer<i32> {
    let start: FileHeader = [MARK, u64::from(std::process::id()), handle];
    // SAFETY: the name ends with a zero byte.
    let file = unsafe { libc::memfd_create(c"memtrace-cusim".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the file is new; an invalid descriptor is an error.
    let has_length = unsafe { libc::ftruncate(file, size as i64) } == 0;
    // SAFETY: it reads from an array that has this size.
    let written = unsafe { libc::pwrite(file, start.as_ptr().cast(), size_of::<FileHeader>(), 0) };
    if has_length && written == size_of::<FileHeader>() as isize { Ok(file) } else { Err(OUT_OF_MEMORY) }
}

/// Reads a file that any process has shared. The size of the memory is the file's length.
pub(super) fn read(file: i32) -> Answer<SharedFile> {
    let mut start: FileHeader = [0; 3];
    // SAFETY: it writes to an array that has this size; an invalid descriptor is an error.
    unsafe { libc::pread(file, start.as_mut_ptr().cast(), size_of::<FileHeader>(), 0) };
    // SAFETY: it moves the position of a file, which nothing uses; an invalid descriptor is an error.
    let length = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
    let size = u64::try_from(length).map_err(|_| INVALID_VALUE)?;
    let [mark, process, handle] = start;
    let is_own = mark == MARK && process == u64::from(std::process::id());
    Ok(SharedFile { size, handle: is_own.then_some(handle) })
}
