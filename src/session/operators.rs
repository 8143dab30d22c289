//! The series of operator calls: made from a snapshot, written, drawn, and read from a file again.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::writing::create;
use crate::analysis::OperatorSeries;
use crate::error::Error;
use crate::export::{ExportOperators, Format};
use crate::record::guard::Own;

/// The calls of operators on one device, one after another (see [`OperatorSeries`]); prints as a table of those that
/// added most.
///
/// ```no_run
/// # let session = memtrace::start()?;
/// let operators = session.snapshot().operators();
/// println!("{operators}");
/// operators.write("train.operators.json")?;
/// operators.write("train.operators.svg")?;
/// // later, elsewhere:
/// let operators = memtrace::read_operators("train.operators.json")?;
/// # Ok::<(), memtrace::Error>(())
/// ```
#[derive(Debug)]
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

    /// Writes a file in the format that the end of its name says, and gives its path: `.operators.json` (to be read again with
    /// [`read_operators`]), `.operators.csv` (a line for each call), `.operators.svg` (its four figures). One whose name
    /// ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the name says no such format, the file cannot be written, or there is nothing to draw.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let format = Format::of(path.as_ref())?;
        create(path.as_ref(), |out| format.write_operators(&self.series, out))
    }

    /// Writes a file in such a format with options: a size to keep to, one figure. The name says nothing but whether it is
    /// compressed.
    ///
    /// # Errors
    /// If the file cannot be written, or there is nothing to draw.
    pub fn write_as(&self, path: impl AsRef<Path>, format: &dyn ExportOperators) -> Result<PathBuf, Error> {
        create(path.as_ref(), |out| format.write_operators(&self.series, out))
    }
}

/// Reads a series that [`Operators::write`] wrote as `.operators.json`, also compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (unpacked), or is no series; says what is wrong with it.
pub fn read_operators(path: impl AsRef<Path>) -> Result<Operators, Error> {
    Ok(Operators { series: Own::try_make(|| memtrace_core::read_operators(path))? })
}
