//! Tells `cargo memtrace run` which files its program writes: the program adds each to a list that `run` made for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::say;
use crate::variable;
use crate::write_errors;

/// Adds a recording of this process to the list, if there is one. A failed write is reported, for example to a full
/// disk. A list that cannot be opened is not reported: `run` removes the list when it ends, and then needs no entry.
pub(super) fn announce(path: &Path) {
    let Some(list) = variable::value("MEMTRACE_RECORDINGS") else { return };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let entry = [std::process::id().to_string().as_bytes(), b" ", path.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let _limit = write_errors::errors_only();
    // One write of one entry, so that entries of several processes do not mix.
    if let Some(Err(error)) = open(Path::new(&list)).ok().map(|mut list| list.write_all(&entry)) {
        say(&format!(
            "cannot write {}: {error}; `cargo memtrace run` does not hear of {}",
            list.display(),
            path.display()
        ));
    }
}

/// Opens the list, which `run` removes when it ends. A path that is not a regular file is refused.
fn open(list: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(list)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
