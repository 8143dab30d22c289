//! Formats by the ends of file names.

use std::io::Write;
use std::path::Path;

use super::chrome::{layout, timeline};
#[cfg(feature = "flamegraph")]
use super::flamegraph;
use super::{LeftOut, categories, folded, json, operators, pytorch, rows_that_fit, text};
use crate::analysis::{self, OperatorSeries};
use crate::capture;
use crate::error::Error;
use crate::snapshot::{Device, SnapshotData};

/// A format, by the end of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.pickle`: PyTorch's `memory_viz`.
    Pytorch,
    /// `.trace.json`: Chrome, Perfetto.
    Chrome,
    /// `.layout.json`: memory layout.
    Layout,
    /// `.json`: the report's numbers.
    Json,
    /// `.svg`: flamegraph of the peak.
    Flamegraph,
    /// `.folded`: folded stacks of the peak.
    Folded,
    /// `.txt`: the report.
    Text,
    /// `.memtrace`: everything, to be read again.
    Capture,
    /// `.operators.json`: the series of operator calls.
    Operators,
    /// `.operators.csv`: the same, a line for each call.
    OperatorsCsv,
    /// `.operators.svg`: its figures.
    OperatorsFigure,
    /// `.categories.*`: bytes of each category over time.
    Categories(Timeline),
}

/// What the category timeline is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// As PyTorch writes it.
    Json,
    /// One entry for each record.
    Raw,
    /// A picture.
    Figure,
    /// A page with the picture.
    Html,
}

/// Longer ends first: `.trace.json` is no report.
const ENDS: &[(&str, Format)] = &[
    (".pickle", Format::Pytorch),
    (".trace.json", Format::Chrome),
    (".layout.json", Format::Layout),
    (".operators.json", Format::Operators),
    (".operators.csv", Format::OperatorsCsv),
    (".operators.svg", Format::OperatorsFigure),
    (".categories.json", Format::Categories(Timeline::Json)),
    (".categories.raw.json", Format::Categories(Timeline::Raw)),
    (".categories.svg", Format::Categories(Timeline::Figure)),
    (".categories.html", Format::Categories(Timeline::Html)),
    (".json", Format::Json),
    (".svg", Format::Flamegraph),
    (".folded", Format::Folded),
    (".txt", Format::Text),
    (".memtrace", Format::Capture),
];

impl Format {
    /// The format that a path asks for; `.gz` behind it is about compression only.
    ///
    /// # Errors
    /// If it asks for none.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let found = ENDS.iter().find(|(end, _)| plain.ends_with(end));
        found.map(|(_, format)| *format).ok_or_else(|| Error::format(path, &known()))
    }

    /// A file's name without its format's end.
    #[doc(hidden)]
    pub fn stem(name: &str) -> &str {
        ENDS.iter().find_map(|(end, _)| name.strip_suffix(end)).unwrap_or(name)
    }

    /// Writes a recording with the options that the format has by default.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw.
    pub fn write(self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        match self {
            Self::Pytorch => pytorch::write(data, &pytorch::Options::default(), out),
            Self::Chrome => timeline::write(data, &timeline::Options::default(), out),
            Self::Layout => layout::write(data, &layout::Options::default(), out),
            Self::Json => json::write(data, &json::Options::default(), out),
            #[cfg(not(feature = "flamegraph"))]
            Self::Flamegraph => Err(without("flamegraph")),
            #[cfg(feature = "flamegraph")]
            Self::Flamegraph => flamegraph::write(data, &flamegraph::Options::default(), out),
            Self::Folded => folded::write(data, &folded::Options::default(), out),
            Self::Text => {
                out.write_all(text::to_string(data, &text::Options::default()).as_bytes())?;
                Ok(LeftOut::default())
            }
            Self::Capture => write_capture(data, None, out),
            Self::Categories(timeline) => timeline.write(data, &categories::Options::default(), out),
            _ => self.write_operators(&operators_of(data, None), out),
        }
    }

    /// Writes a series of operators in a format that is of these.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw; if the format is another.
    pub fn write_operators(self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        match self {
            Self::Operators => operators::write(series, &operators::Options::default(), out),
            Self::OperatorsCsv => operators::write_csv(series, out),
            #[cfg(not(feature = "figures"))]
            Self::OperatorsFigure => Err(without("figures")),
            #[cfg(feature = "figures")]
            Self::OperatorsFigure => super::figure::write(series, &super::figure::Options::default(), out),
            _ => Err(Error::format(Path::new(""), ".operators.json, .operators.csv, .operators.svg")),
        }
    }
}

#[cfg(not(all(feature = "figures", feature = "flamegraph")))]
fn without(feature: &str) -> Error {
    Error::drawing("picture", format!("this was built without memtrace's feature `{feature}`"))
}

/// The calls of operators on a device, the main one if there is no other; without such a device there are none.
pub fn operators_of(data: &SnapshotData, device: Option<Device>) -> OperatorSeries {
    analysis::device_or_main(data, device).map(|device| analysis::operators(data, device)).unwrap_or_default()
}

/// A capture of a whole recording, of at most so many bytes if that is possible: the oldest records are left out.
///
/// # Errors
/// If it cannot be written.
pub fn write_capture(data: &SnapshotData, max_bytes: Option<u64>, out: &mut dyn Write) -> Result<LeftOut, Error> {
    let records = data.devices.iter().map(|device| device.records.len()).max().unwrap_or(0);
    let write = |records: usize, _: &LeftOut, out: &mut dyn Write| Ok(capture::write(data, records, out)?);
    let left_out = rows_that_fit(max_bytes, records, out, write)?;
    Ok(LeftOut { oldest_records: left_out.rows, rows: 0, ..left_out })
}

impl Timeline {
    /// Writes the category timeline.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw.
    pub fn write(
        self,
        data: &SnapshotData,
        options: &categories::Options,
        out: &mut dyn Write,
    ) -> Result<LeftOut, Error> {
        match self {
            Self::Json => categories::write(data, options, out),
            Self::Raw => categories::write_raw(data, options, out),
            #[cfg(not(feature = "figures"))]
            Self::Figure | Self::Html => Err(without("figures")),
            #[cfg(feature = "figures")]
            Self::Figure => categories::write_figure(data, options, out),
            #[cfg(feature = "figures")]
            Self::Html => categories::write_html(data, options, out),
        }
    }
}

fn known() -> String {
    ENDS.iter().map(|(end, _)| *end).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_the_format() {
        let cases = [
            ("a/b.pickle", Format::Pytorch),
            ("b.pickle.gz", Format::Pytorch),
            ("b.trace.json.gz", Format::Chrome),
            ("b.layout.json", Format::Layout),
            ("b.json", Format::Json),
            ("b.operators.json.gz", Format::Operators),
            ("b.operators.csv", Format::OperatorsCsv),
            ("b.categories.json.gz", Format::Categories(Timeline::Json)),
            ("b.categories.raw.json.gz", Format::Categories(Timeline::Raw)),
            ("b.memtrace", Format::Capture),
        ];
        cases.iter().for_each(|(path, format)| assert_eq!(Format::of(Path::new(path)).unwrap(), *format));
        let error = Format::of(Path::new("x.bin")).unwrap_err().to_string();
        assert!(error.contains(".pickle") && error.contains("x.bin"), "{error}");
    }
}
