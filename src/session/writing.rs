//! Files, written as memtrace's own work.

use std::io::Write;
use std::path::PathBuf;

use super::say;
use crate::error::Error;
use crate::export::LeftOut;
use crate::export::file::{self, Place};
use crate::record::own;
use crate::write_errors::errors_only;

/// Writes a file as memtrace's own work, and says what it left out. The path is the caller's.
pub(super) fn create(
    place: Place<'_>,
    content: impl FnOnce(&mut dyn Write) -> Result<LeftOut, memtrace_core::Error>,
) -> Result<PathBuf, Error> {
    own(|| {
        let _limit = errors_only();
        let left_out = file::create(place, content)
            .map_err(|error| error.and("the recording is still in memory, try another path"))?;
        if !left_out.is_nothing() {
            say(&format!("{}: {left_out}", place.path().display()));
        }
        Ok::<_, Error>(())
    })?;
    Ok(place.path().to_owned())
}
