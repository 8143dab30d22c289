//! Files, written as memtrace's own work.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::say;
use crate::error::Error;
use crate::export::{LeftOut, file};
use crate::record::guard::Own;
use crate::write_errors::errors_only;

/// Writes a file as memtrace's own work, and says what it left out. The path that it has is the caller's.
pub(super) fn create(
    path: &Path,
    content: impl Fn(&mut dyn Write) -> Result<LeftOut, memtrace_core::Error>,
) -> Result<PathBuf, Error> {
    let written = Own::try_make(|| {
        let _limit = errors_only();
        let (path, left_out) = file::create(path, content)
            .map_err(|error| error.and("the recording is still in memory, try another path"))?;
        if !left_out.is_nothing() {
            say(&format!("{}: {left_out}", path.display()));
        }
        Ok::<_, Error>(path)
    })?;
    Ok(written.to_path_buf())
}
