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
//! | [`Folded`], `Flamegraph` | `.folded`, `.svg` | stacks of the peak, also for speedscope |
//! | [`Pprof`] | `.pb` | a profile for `go tool pprof` |
//! | [`Dhat`] | `.dhat.json` | for DHAT's viewer and the Firefox Profiler |
//! | [`Capture`] | `.memtrace` | the whole recording, for [`open`](crate::open) |
//! | [`OperatorsJson`], [`OperatorsSvg`] | `.operators.json`, `.operators.svg` | the series of operator calls |
//! | [`CategoriesJson`], [`CategoriesRaw`], [`TimelineSvg`] | `.categories.json`, `.categories.raw.json`, `.categories.svg` | the category timeline |
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
#[cfg(feature = "flamegraph")]
mod flamegraph;
mod folded;
mod format;
mod gathered;
#[cfg(test)]
pub(crate) mod golden_tests;
mod html;
mod json;
mod link;
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
#[cfg(test)]
mod sample_tests;
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
#[cfg(feature = "flamegraph")]
pub use flamegraph::{Flamegraph, FlamegraphDiff};
pub use folded::{Folded, Measure};
pub use format::Format;
#[cfg(not(feature = "flamegraph"))]
use format::MissingFlamegraph as Flamegraph;
pub use html::HtmlPage;
pub use json::{Json, growth_json, plan_json, ranks_diff_json, ranks_figures, ranks_json, report_json, what_if_json};
pub use link::LinkForm;
#[doc(hidden)]
pub use markdown::code as markdown_code;
#[doc(hidden)]
pub use markdown::escaped as markdown_text;
pub use markdown::markdown;
pub use operators::{ExportOperators, OperatorsJson, OperatorsSvg, operators_of, parse_operators, read_operators};
pub use pprof::Pprof;
pub use pytorch::Pickle;
pub use text::{Text, at_peak};
pub use timeline::TimelineSvg;

use crate::error::Error;
use crate::snapshot::SnapshotData;

/// A format with its options.
pub trait Export {
    /// Writes the recording, and returns what it left out to fit a size limit.
    ///
    /// # Errors
    /// If `out` fails, or if there is nothing to draw.
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error>;
}
