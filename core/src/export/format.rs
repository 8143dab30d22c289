//! Formats by the ends of file names: a format is a file beside this one, and a row here.

use std::io::Write;
use std::path::Path;

use super::chrome::{layout, timeline};
#[cfg(feature = "figures")]
use super::figure;
#[cfg(feature = "flamegraph")]
use super::flamegraph;
use super::{LeftOut, budget, categories, folded, json, operators, pytorch, text};
use crate::analysis::{self, OperatorSeries};
use crate::capture;
use crate::error::Error;
use crate::snapshot::{Device, SnapshotData};

type Written = Result<LeftOut, Error>;
type OfRecording = fn(&SnapshotData, &mut dyn Write) -> Written;
type OfOperators = fn(&OperatorSeries, &mut dyn Write) -> Written;
type OfTimeline = fn(&SnapshotData, &categories::Options, &mut dyn Write) -> Written;

/// Of a whole recording. Longer ends first, here and below: `.trace.json` is no report.
const RECORDINGS: [(&str, OfRecording); 8] = [
    (".pickle", |data, out| pytorch::write(data, &pytorch::Options::default(), out)),
    (".trace.json", |data, out| timeline::write(data, &timeline::Options::default(), out)),
    (".layout.json", |data, out| layout::write(data, &layout::Options::default(), out)),
    (".json", |data, out| json::write(data, &json::Options::default(), out)),
    #[cfg(feature = "flamegraph")]
    (".svg", |data, out| flamegraph::write(data, &flamegraph::Options::default(), out)),
    #[cfg(not(feature = "flamegraph"))]
    (".svg", |_, _| Err(without("flamegraph"))),
    (".folded", |data, out| folded::write(data, &folded::Options::default(), out)),
    (".txt", |data, out| {
        out.write_all(text::to_string(data, &text::Options::default()).as_bytes())?;
        Ok(LeftOut::default())
    }),
    (".memtrace", |data, out| write_capture(data, None, out)),
];

/// Of the series of operator calls.
const OPERATORS: [(&str, OfOperators); 3] = [
    (".operators.json", |series, out| operators::write(series, &operators::Options::default(), out)),
    (".operators.csv", |series, out| operators::write_csv(series, out)),
    #[cfg(feature = "figures")]
    (".operators.svg", |series, out| figure::write(series, &figure::Options::default(), out)),
    #[cfg(not(feature = "figures"))]
    (".operators.svg", |_, _| Err(without("figures"))),
];

/// Of the bytes of each category over time.
const TIMELINES: [(&str, OfTimeline); 4] = [
    (".categories.raw.json", |data, options, out| categories::write_raw(data, options, out)),
    (".categories.json", |data, options, out| categories::write(data, options, out)),
    #[cfg(feature = "figures")]
    (".categories.svg", |data, options, out| categories::write_figure(data, options, out)),
    #[cfg(feature = "figures")]
    (".categories.html", |data, options, out| categories::write_html(data, options, out)),
    #[cfg(not(feature = "figures"))]
    (".categories.svg", |_, _, _| Err(without("figures"))),
    #[cfg(not(feature = "figures"))]
    (".categories.html", |_, _, _| Err(without("figures"))),
];

#[cfg(not(all(feature = "figures", feature = "flamegraph")))]
fn without(feature: &str) -> Error {
    Error::drawing("picture", format!("this was built without memtrace's feature `{feature}`"))
}

/// A format, by the end of a file's name.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    end: &'static str,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Recording(OfRecording),
    Operators(OfOperators),
    Timeline(OfTimeline),
}

impl Format {
    fn all() -> impl Iterator<Item = Self> {
        let timelines = TIMELINES.into_iter().map(|(end, write)| Self { end, of: Of::Timeline(write) });
        let operators = OPERATORS.into_iter().map(|(end, write)| Self { end, of: Of::Operators(write) });
        let recordings = RECORDINGS.into_iter().map(|(end, write)| Self { end, of: Of::Recording(write) });
        timelines.chain(operators).chain(recordings)
    }

    /// The format that a path asks for; `.gz` behind it is about compression only.
    ///
    /// # Errors
    /// If it asks for none.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let found = Self::all().find(|format| plain.ends_with(format.end));
        found.ok_or_else(|| {
            let known = [RECORDINGS.map(|(end, _)| end).join(", "), OPERATORS.map(|(end, _)| end).join(", ")];
            Error::format(path, &format!("{}, {}", known.join(", "), TIMELINES.map(|(end, _)| end).join(", ")))
        })
    }

    /// A file's name without its format's end.
    #[doc(hidden)]
    pub fn stem(name: &str) -> &str {
        Self::all().find_map(|format| name.strip_suffix(format.end)).unwrap_or(name)
    }

    /// Writes a recording with the options that the format has by default.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw.
    pub fn write(self, data: &SnapshotData, out: &mut dyn Write) -> Written {
        match self.of {
            Of::Recording(write) => write(data, out),
            Of::Operators(write) => write(&operators_of(data, None), out),
            Of::Timeline(write) => write(data, &categories::Options::default(), out),
        }
    }

    /// Writes a series of operators.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw; if the format is no series'.
    pub fn write_operators(self, series: &OperatorSeries, out: &mut dyn Write) -> Written {
        match self.of {
            Of::Operators(write) => write(series, out),
            _ => Err(Error::format(Path::new(self.end), &OPERATORS.map(|(end, _)| end).join(", "))),
        }
    }

    /// Writes the category timeline.
    ///
    /// # Errors
    /// If it cannot be written, or there is nothing to draw; if the format is no timeline's.
    pub fn write_timeline(self, data: &SnapshotData, options: &categories::Options, out: &mut dyn Write) -> Written {
        match self.of {
            Of::Timeline(write) => write(data, options, out),
            _ => Err(Error::format(Path::new(self.end), &TIMELINES.map(|(end, _)| end).join(", "))),
        }
    }
}

/// The calls of operators on a device, the main one if there is no other; without such a device there are none.
pub fn operators_of(data: &SnapshotData, device: Option<Device>) -> OperatorSeries {
    analysis::device_or_main(data, device).map(|device| analysis::operators(data, device)).unwrap_or_default()
}

/// A capture of a whole recording, of at most so many bytes if that is possible: the oldest records are left out.
///
/// # Errors
/// If it cannot be written.
pub fn write_capture(data: &SnapshotData, max_bytes: Option<u64>, out: &mut dyn Write) -> Written {
    let records = data.devices.iter().map(|device| device.records.len()).max().unwrap_or(0);
    let left_out = |step: usize| LeftOut { oldest_records: step as u64, ..LeftOut::default() };
    budget::stepwise(
        max_bytes,
        || records,
        left_out,
        out,
        |step, _, out| Ok(capture::write(data, records - step, out)?),
    )
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
