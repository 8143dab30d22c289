//! Memory as an open file, which can be sent to other processes. The file's length is the memory's size;
//! it begins with who made it. An open file does not keep the memory, as it does on a GPU.

use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const FILE: u32 = 1;

/// How a file begins: that it is one of ours, the process, the handle.
type Start = [u64; 3];

const MARK: u64 = u64::from_le_bytes(*b"cusimmem");

/// What a file stands for.
pub(super) struct Shared {
    pub(super) size: u64,
    /// The handle, if this process made the file.
    pub(super) handle: Option<u64>,
}

pub(super) fn export(handle: u64, size: u64) -> Answer<i32> {
    let start: Start = [MARK, u64::from(std::process::id()), handle];
    // SAFETY: the name ends with a zero byte.
    let file = unsafe { libc::memfd_create(c"memtrace-cusim".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: a file of ours; a wrong number is an error.
    let has_length = unsafe { libc::ftruncate(file, size as i64) } == 0;
    // SAFETY: reads from an array.
    let written = unsafe { libc::pwrite(file, start.as_ptr().cast(), size_of::<Start>(), 0) };
    if has_length && written == size_of::<Start>() as isize { Ok(file) } else { Err(OUT_OF_MEMORY) }
}

/// Reads a file of any process. One that says nothing is memory of its length.
pub(super) fn read(file: i32) -> Answer<Shared> {
    let mut start: Start = [0; 3];
    // SAFETY: writes to an array; a wrong number is an error.
    unsafe { libc::pread(file, start.as_mut_ptr().cast(), size_of::<Start>(), 0) };
    // SAFETY: moves to the end of a file whose position means nothing; a wrong number is an error.
    let length = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
    let size = u64::try_from(length).map_err(|_| INVALID_VALUE)?;
    let [mark, process, handle] = start;
    let is_own = mark == MARK && process == u64::from(std::process::id());
    Ok(Shared { size, handle: is_own.then_some(handle) })
}
