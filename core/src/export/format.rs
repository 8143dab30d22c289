//! Format lookup by file extension.

use std::io::Write;
use std::path::Path;

use super::{Export, ExportOperators, FORMATS, LeftOut};
use crate::analysis::OperatorSeries;
use crate::error::Error;
use crate::snapshot::SnapshotData;

type OfRecording = fn(&SnapshotData, &mut dyn Write) -> Result<LeftOut, Error>;
type OfOperators = fn(&OperatorSeries, &mut dyn Write) -> Result<LeftOut, Error>;

/// A format with its default options, by extension.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    extension: &'static str,
    write: OfRecording,
    write_operators: Option<OfOperators>,
}

impl Format {
    pub(super) const fn of_recording<F: Export + Default>(extension: &'static str) -> Self {
        Self { extension, write: |data, out| F::default().write(data, out), write_operators: None }
    }

    pub(super) const fn of_operators<F: ExportOperators + Default>(extension: &'static str) -> Self {
        let write: OfOperators = |series, out| F::default().write_operators(series, out);
        Self { write_operators: Some(write), ..Self::of_recording::<F>(extension) }
    }

    /// The format for a path's extension; a final `.gz` means compression.
    ///
    /// # Errors
    /// If no format has this extension.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let plain = name.strip_suffix(b".gz").unwrap_or(name);
        Self::by_extension(plain).ok_or_else(|| Error::format(path, &FORMATS.map(|format| format.extension).join(", ")))
    }

    /// A file's name without its format's extension.
    pub(super) fn stem(name: &str) -> &str {
        Self::by_extension(name.as_bytes()).and_then(|format| name.strip_suffix(format.extension)).unwrap_or(name)
    }

    /// The longest extension wins: `.trace.json` is not a report.
    fn by_extension(name: &[u8]) -> Option<Self> {
        FORMATS
            .into_iter()
            .filter(|format| name.ends_with(format.extension.as_bytes()))
            .max_by_key(|format| format.extension.len())
    }

    /// Writes a recording.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw.
    pub fn write(self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        (self.write)(data, out)
    }

    /// Writes a series of operator calls.
    ///
    /// # Errors
    /// If it cannot be written, if there is nothing to draw, or if the format is for recordings only.
    pub fn write_operators(self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let of_operators = |format: Self| format.write_operators.map(|_| format.extension);
        let known = || FORMATS.into_iter().filter_map(of_operators).collect::<Vec<_>>().join(", ");
        let write = self.write_operators.ok_or_else(|| Error::format(Path::new(self.extension), &known()))?;
        write(series, out)
    }
}

/// In place of the flamegraph if its feature is off.
#[cfg(not(feature = "flamegraph"))]
#[derive(Default)]
pub(super) struct MissingFlamegraph;

#[cfg(not(feature = "flamegraph"))]
impl super::Export for MissingFlamegraph {
    fn write(&self, _: &SnapshotData, _: &mut dyn Write) -> Result<LeftOut, Error> {
        Err(Error::drawing("picture", "this was built without memtrace's feature `flamegraph`".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_known_extension_is_the_format() {
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
            ("b.pb.gz", ".pb"),
            ("b.dhat.json", ".dhat.json"),
            ("b.speedscope.json", ".speedscope.json"),
            ("b.firefox.json.gz", ".firefox.json"),
        ];
        cases
            .iter()
            .for_each(|(path, extension)| assert_eq!(Format::of(Path::new(path)).unwrap().extension, *extension));
        let error = Format::of(Path::new("x.bin")).unwrap_err().to_string();
        assert!(error.contains(".pickle") && error.contains("x.bin"), "{error}");
    }
}
