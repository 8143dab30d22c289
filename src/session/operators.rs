//! The series of operator calls: made from a snapshot, written, drawn, and read from a file again.

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use super::writing::create;
use crate::analysis::OperatorSeries;
use crate::error::Error;
use crate::export::file::Place;
use crate::export::{Format, operators};
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

    /// A file in the format that the end of its name says: `.operators.json` (to be read again with
    /// [`read_operators`]), `.operators.csv` (a line for each call), `.operators.svg` (its four figures). One whose name
    /// ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the name says no such format, the file cannot be written, or there is nothing to draw.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_to(Place::Replaced(path.as_ref()))
    }

    pub(super) fn write_to(&self, place: Place<'_>) -> Result<(), Error> {
        let format = Format::of(place.path())?;
        create(place, |out| format.write_operators(&self.series, out))
    }

    /// JSON with options: a size to keep to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_json_with(&self, path: impl AsRef<Path>, options: &operators::Options) -> Result<(), Error> {
        create(Place::Replaced(path.as_ref()), |out| operators::write(&self.series, options, out))
    }

    /// Figures (SVG) with options: one of them, their size in pixels.
    ///
    /// # Errors
    /// If the file cannot be written, or there are no calls.
    #[cfg(feature = "figures")]
    pub fn write_figure(&self, path: impl AsRef<Path>, options: &crate::export::figure::Options) -> Result<(), Error> {
        create(Place::Replaced(path.as_ref()), |out| crate::export::figure::write(&self.series, options, out))
    }
}

/// Reads a series that [`Operators::write`] wrote as `.operators.json`, also compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (unpacked), or is no series; says what is wrong with it.
pub fn read_operators(path: impl AsRef<Path>) -> Result<Operators, Error> {
    Ok(Operators { series: Own::try_make(|| memtrace_core::read_operators(path))? })
}
