//! Formats by the ends of file names.

use std::io::Write;
use std::path::Path;

use super::{Export, ExportOperators, FORMATS, LeftOut};
use crate::analysis::OperatorSeries;
use crate::error::Error;
use crate::snapshot::SnapshotData;

type OfRecording = fn(&SnapshotData, &mut dyn Write) -> Result<LeftOut, Error>;
type OfOperators = fn(&OperatorSeries, &mut dyn Write) -> Result<LeftOut, Error>;

/// A format with the options that it has by default, by the end of a file's name.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    end: &'static str,
    write: OfRecording,
    write_operators: Option<OfOperators>,
}

impl Format {
    pub(super) const fn of_recording<F: Export + Default>(end: &'static str) -> Self {
        Self { end, write: |data, out| F::default().write(data, out), write_operators: None }
    }

    pub(super) const fn of_operators<F: ExportOperators + Default>(end: &'static str) -> Self {
        let write: OfOperators = |series, out| F::default().write_operators(series, out);
        Self { write_operators: Some(write), ..Self::of_recording::<F>(end) }
    }

    /// The format that a path asks for; `.gz` behind it is about compression only.
    ///
    /// # Errors
    /// If it asks for none.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let plain = name.strip_suffix(b".gz").unwrap_or(name);
        Self::by_end(plain).ok_or_else(|| Error::format(path, &FORMATS.map(|format| format.end).join(", ")))
    }

    /// A file's name without its format's end.
    pub(super) fn stem(name: &str) -> &str {
        Self::by_end(name.as_bytes()).and_then(|format| name.strip_suffix(format.end)).unwrap_or(name)
    }

    /// The longest end: `.trace.json` is no report.
    fn by_end(name: &[u8]) -> Option<Self> {
        FORMATS.into_iter().filter(|format| name.ends_with(format.end.as_bytes())).max_by_key(|format| format.end.len())
    }

    /// Writes a recording.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw.
    pub fn write(self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        (self.write)(data, out)
    }

    /// Writes a series of operators.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw; if the format is no series'.
    pub fn write_operators(self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let of_operators = |format: Self| format.write_operators.map(|_| format.end);
        let known = || FORMATS.into_iter().filter_map(of_operators).collect::<Vec<_>>().join(", ");
        let write = self.write_operators.ok_or_else(|| Error::format(Path::new(self.end), &known()))?;
        write(series, out)
    }
}

/// Stands for a picture whose feature this was built without.
#[cfg(not(all(feature = "figures", feature = "flamegraph")))]
#[derive(Default)]
pub(super) struct Missing<const FIGURES: bool>;

#[cfg(not(all(feature = "figures", feature = "flamegraph")))]
impl<const FIGURES: bool> ExportOperators for Missing<FIGURES> {
    fn write_operators(&self, _: &OperatorSeries, _: &mut dyn Write) -> Result<LeftOut, Error> {
        let feature = if FIGURES { "figures" } else { "flamegraph" };
        Err(Error::drawing("picture", format!("this was built without memtrace's feature `{feature}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_the_format() {
        let cases = [
            ("a/b.pickle", ".pickle"),
            ("b.pickle.gz", ".pickle"),
            ("b.trace.json.gz", ".trace.json"),
            ("b.layout.json", ".layout.json"),
            ("b.json", ".json"),
            ("b.operators.json.gz", ".operators.json"),
            ("b.operators.csv", ".operators.csv"),
            ("b.categories.json.gz", ".categories.json"),
            ("b.categories.raw.json.gz", ".categories.raw.json"),
            ("b.memtrace", ".memtrace"),
        ];
        cases.iter().for_each(|(path, end)| assert_eq!(Format::of(Path::new(path)).unwrap().end, *end));
        let error = Format::of(Path::new("x.bin")).unwrap_err().to_string();
        assert!(error.contains(".pickle") && error.contains("x.bin"), "{error}");
    }
}
