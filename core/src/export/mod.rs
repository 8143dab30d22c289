//! Exporters: serialize a recording for viewers, tools and people.
//!
//! Each format is a type whose value has the format's options. It implements [`Export`], which writes to any
//! [`Write`]; [`mod@file`] writes files.
//!
//! | type | extension | content |
//! |---|---|---|
//! | [`Pickle`] | `.pickle` | for PyTorch's `memory_viz` |
//! | [`ChromeTrace`] | `.trace.json` | events over time, for Perfetto and `chrome://tracing` |
//! | [`MemoryLayout`] | `.layout.json` | the blocks in each region of memory, step by step, for the same viewers |
//! | [`Text`], [`Json`] | `.txt`, `.json` | the report |
//! | [`HtmlPage`] | `.html` | the offline page, for browsers |
//! | [`Folded`], `Flamegraph` | `.folded`, `.svg` | stacks of the peak |
//! | [`Speedscope`] | `.speedscope.json` | profiles of each device for speedscope |
//! | [`Pprof`] | `.pb` | a profile for `go tool pprof` |
//! | [`Dhat`] | `.dhat.json` | for DHAT's viewer |
//! | [`Firefox`] | `.firefox.json` | a profile of allocations over time for the Firefox Profiler |
//! | [`Capture`] | `.memtrace` | the whole recording, for [`read_capture`](crate::read_capture) |
//! | [`OperatorsJson`], [`OperatorsCsv`], [`OperatorsSvg`] | `.operators.json`, `.csv`, `.svg` | the series of operator calls |
//! | [`CategoriesJson`], [`CategoriesRaw`], [`TimelineSvg`] | `.categories.json`, `.raw.json`, `.svg` | the category timeline |
//!
//! `Flamegraph` needs the feature `flamegraph`.

pub(crate) mod advice;
mod budget;
mod capture;
mod categories;
mod chrome;
#[doc(hidden)]
pub mod csv;
mod dhat;
pub mod file;
mod firefox;
#[cfg(feature = "flamegraph")]
mod flamegraph;
mod folded;
mod format;
mod gathered;
#[cfg(test)]
pub(crate) mod golden_tests;
mod html;
mod json;
mod markdown;
#[cfg(test)]
mod naive_protobuf;
#[cfg(test)]
mod naive_unpickle;
mod operators;
mod pickle;
mod pprof;
#[cfg(test)]
mod proportion_tests;
mod protobuf;
mod pytorch;
mod report_json;
#[cfg(test)]
mod sample_tests;
mod speedscope;
mod svg;
pub mod table;
mod text;
mod timeline;
#[cfg(test)]
mod viewer_tests;
mod viewers;

use std::io::Write;

pub use budget::LeftOut;
pub use capture::Capture;
pub use categories::{CategoriesJson, CategoriesRaw};
pub use chrome::{ChromeTrace, MemoryLayout, Steps};
pub use dhat::Dhat;
pub use firefox::Firefox;
#[cfg(feature = "flamegraph")]
pub use flamegraph::{Flamegraph, FlamegraphDiff};
pub use folded::{Folded, Measure};
pub use format::Format;
#[cfg(not(feature = "flamegraph"))]
use format::MissingFlamegraph as Flamegraph;
pub use html::HtmlPage;
pub use json::Json;
#[doc(hidden)]
pub use markdown::code as markdown_code;
#[doc(hidden)]
pub use markdown::escaped as markdown_text;
pub use markdown::markdown;
pub use operators::{
    ExportOperators, Figure, OperatorsCsv, OperatorsJson, OperatorsSvg, operators_of, parse_operators,
};
pub use pprof::Pprof;
pub use pytorch::Pickle;
pub use report_json::report_json;
pub use speedscope::Speedscope;
pub use text::{Text, at_peak};
pub use timeline::TimelineSvg;

use crate::error::Error;
use crate::snapshot::SnapshotData;

/// Formats by extension. A new format is a file beside this one, a line in the table above, and a row here.
const FORMATS: [Format; 19] = [
    Format::of_recording::<Pickle>(".pickle"),
    Format::of_recording::<ChromeTrace>(".trace.json"),
    Format::of_recording::<MemoryLayout>(".layout.json"),
    Format::of_recording::<Json>(".json"),
    Format::of_recording::<Flamegraph>(".svg"),
    Format::of_recording::<Folded>(".folded"),
    Format::of_recording::<HtmlPage<'static>>(".html"),
    Format::of_recording::<Text>(".txt"),
    Format::of_recording::<Speedscope>(".speedscope.json"),
    Format::of_recording::<Pprof>(".pb"),
    Format::of_recording::<Dhat>(".dhat.json"),
    Format::of_recording::<Firefox>(".firefox.json"),
    Format::of_recording::<Capture>(".memtrace"),
    Format::of_operators::<OperatorsJson>(".operators.json"),
    Format::of_operators::<OperatorsCsv>(".operators.csv"),
    Format::of_operators::<OperatorsSvg>(".operators.svg"),
    Format::of_recording::<CategoriesRaw>(".categories.raw.json"),
    Format::of_recording::<CategoriesJson>(".categories.json"),
    Format::of_recording::<TimelineSvg>(".categories.svg"),
];

/// A format with its options.
pub trait Export {
    /// Writes the recording, and returns what it left out to keep to a size.
    ///
    /// # Errors
    /// If `out` fails, or there is nothing to draw.
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error>;
}
