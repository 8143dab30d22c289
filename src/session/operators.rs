//! The operator calls of a snapshot as a series, printed as a table or written to files.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memtrace_core::analysis::OperatorSeries;
use memtrace_core::export::{ExportOperators, Format};

use super::files::create;
use crate::error::Error;
use crate::record::guard::Own;

/// The operator calls on one device, in order (see [`OperatorSeries`]). Prints as a table of the calls that added most
/// memory.
///
/// ```no_run
/// # let session = memtrace::start()?;
/// let operators = session.snapshot().operators();
/// println!("{operators}");
/// operators.write("train.operators.json")?;
/// operators.write("train.operators.svg")?;
/// // Later, in another program:
/// let operators = memtrace::read_operators("train.operators.json")?;
/// # Ok::<(), memtrace::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "print the series, or `write` it to a file"]
pub struct Operators {
    series: Own<OperatorSeries>,
}

impl Deref for Operators {
    type Target = OperatorSeries;
    fn deref(&self) -> &OperatorSeries {
        &self.series
    }
}

impl fmt::Display for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Own::make(|| self.series.to_string());
        f.write_str(&text)
    }
}

impl Operators {
    pub(super) fn make(series: impl FnOnce() -> OperatorSeries) -> Self {
        Self { series: Own::make(series) }
    }

    /// Writes a file in the format of its extension and returns its path: `.operators.json` (for [`read_operators`]) or
    /// `.operators.svg` (four figures). A name that ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the extension names no such format, the file cannot be written, or there is nothing to draw.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let format = Format::of(path.as_ref())?;
        create(path.as_ref(), |out| format.write_operators(&self.series, out))
    }

    /// Writes a file in this format with its options, such as a size limit or a single chart. The name decides only
    /// whether the file is compressed (`.gz`).
    ///
    /// # Errors
    /// If the file cannot be written, or there is nothing to draw.
    pub fn write_as(&self, path: impl AsRef<Path>, format: &dyn ExportOperators) -> Result<PathBuf, Error> {
        create(path.as_ref(), |out| format.write_operators(&self.series, out))
    }
}

/// Reads a series that [`Operators::write`] wrote as `.operators.json`, compressed or not.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (unpacked), or is no series.
pub fn read_operators(path: impl AsRef<Path>) -> Result<Operators, Error> {
    Ok(Operators { series: Own::try_make(|| memtrace_core::export::read_operators(path))? })
}
