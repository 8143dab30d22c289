//! Report serializer: one JSON document with a schema, for a whole recording or for what a command prints about it.

mod device;
mod growth;
mod parts;
mod plan;
mod ranks;
mod recording;
#[cfg(test)]
mod tests;
mod text;
mod what_if;

use std::borrow::Cow;
use std::io::Write;

use serde::Serialize;

use self::device::DeviceFigures;
pub use self::growth::growth_json;
pub(in crate::export) use self::parts::FindingFigures;
pub use self::plan::plan_json;
use self::ranks::Ranks;
use self::recording::{Module, Recording};
use self::text::{text_as, text_of};
pub use self::what_if::what_if_json;
use super::{Export, LeftOut, budget};
use crate::analysis;
use crate::error::Error;
use crate::figures::figures;
use crate::report::{NamedRows, Report, ReportOptions, Section};
use crate::snapshot::SnapshotData;

/// The version of the JSON. It increases when a key is removed or changes its meaning.
const VERSION: u32 = 2;

/// The report's numbers as JSON: every device with its peak, breakdowns, scopes, temporaries and counters. A sampled
/// device has `estimated` and `sampled`. [`Json::SCHEMA`] describes all keys. The value of `version` increases when a
/// key is removed or changes its meaning.
#[derive(Clone, Debug)]
pub struct Json {
    /// Writes one line instead of indented lines.
    pub compact: bool,
    /// The size limit: beyond it the smallest rows of each table are summed in one. 32 MiB by default, which no
    /// program's report reaches; no limit if `None`.
    pub max_bytes: Option<u64>,
}

impl Default for Json {
    fn default() -> Self {
        Self { compact: false, max_bytes: Some(32 << 20) }
    }
}

impl Json {
    /// The JSON Schema of the format; it describes each key.
    pub const SCHEMA: &str = include_str!("../report.schema.json");
}

impl Export for Json {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let views = crate::Recording::new(data);
        let devices = views.devices().iter().map(DeviceFigures::of).collect();
        let modules = Some(data.objects.iter().map(Module::of).collect());
        let whole = Document { recording: Some(Recording::of(&views)), devices, modules, ..Document::new() };
        budget::rows(self.max_bytes, whole.longest(), out, |rows, left_out, out| {
            let part = (!left_out.is_nothing()).then(|| whole.first(rows, left_out));
            Ok(out.write_all(part.as_ref().unwrap_or(&whole).text(self.compact)?.as_bytes())?)
        })
    }
}

/// A report as the JSON that [`Json::SCHEMA`] describes: the texts of the report and, from the recording, the device
/// and the tables that the report shows. A report that is not made by [`Report::of`], such as a difference, has its
/// rows in `sections`.
///
/// # Errors
/// Never, because text can always be written.
pub fn report_json(report: &Report, of: Option<(&SnapshotData, &ReportOptions)>) -> Result<String, Error> {
    let of = of.map(|(data, options)| (crate::Recording::new(data), options));
    let device = of.as_ref().and_then(|(views, options)| Some((views.device_or_main(options.device)?, options.rows)));
    let devices = device.map(|(device, rows)| DeviceFigures::shown(device, report, rows));
    let document = Document {
        recording: of.map(|(views, _)| Recording::of(&views)),
        ..Document::of_words(report, devices.is_none())
    };
    Document { devices: devices.into_iter().collect(), ..document }.text(false)
}

/// The report of ranks as the JSON that [`Json::SCHEMA`] describes.
///
/// # Errors
/// Never, because text can always be written.
pub fn ranks_json(ranks: &analysis::Ranks, report: &Report) -> Result<String, Error> {
    Document { ranks: Some(Ranks::of(ranks)), ..Document::of_words(report, true) }.text(false)
}

/// The report of two jobs as the JSON that [`Json::SCHEMA`] describes.
///
/// # Errors
/// Never, because text can always be written.
pub fn ranks_diff_json(diff: &analysis::RanksDiff, report: &Report) -> Result<String, Error> {
    let [ranks_before, ranks_after] = [&diff.before, &diff.after].map(|ranks| Some(Ranks::of(ranks)));
    Document { ranks_before, ranks_after, ..Document::of_words(report, true) }.text(false)
}

/// The value of `ranks` in a report of ranks: the ranks that stand out, and what is missing.
pub fn ranks_figures(ranks: &analysis::Ranks) -> impl Serialize {
    Ranks::of(ranks)
}

/// The JSON of a whole recording (an export), or of what a command prints about recordings (a report). Bytes are
/// integers, and times are nanoseconds. `version` increases when a key is removed or changes its meaning. New keys may
/// be added without a new version.
#[derive(Clone, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "memtrace's report as JSON"))]
struct Document {
    /// Version of this schema.
    #[cfg_attr(test, schemars(extend("const" = VERSION)))]
    version: u32,
    /// Name and version of the memtrace that wrote this document.
    recorded_by: &'static str,
    /// The title of the report, such as the program and the device. Absent in an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The answer in sentences, such as how much memory was live, when, where, and what for. Absent in an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Vec<String>>,
    /// Sentences on the limits of the figures, and on memory that was not seen. Absent in an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<String>>,
    /// The devices that were used, the heap first. A report has only the device that it describes. Empty in a report of
    /// ranks, in a difference, and in the output of `explain`.
    devices: Vec<DeviceFigures>,
    /// The tables of a report, in its order. If `devices` has a device, the rows are there, under the same key, such as
    /// `peak_by_line`. Absent in an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    sections: Option<Vec<SectionWords>>,
    /// The ranks that stand out, and what is missing. Only in a report of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<Ranks>,
    /// The ranks of the first job. Only in a difference of two jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks_before: Option<Ranks>,
    /// The ranks of the second job. Only in a difference of two jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks_after: Option<Ranks>,
    /// The parts that were left out to stay within a size limit, in words. Absent if the document is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(flatten)]
    recording: Option<Recording>,
    /// Loaded programs and libraries. Absent in a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    modules: Option<Vec<Module>>,
}

impl Document {
    fn new() -> Self {
        Self { version: VERSION, recorded_by: concat!("memtrace ", env!("CARGO_PKG_VERSION")), ..Self::default() }
    }

    /// A report's texts. If `has_rows` is true, also the rows of its sections, which otherwise are in the devices.
    fn of_words(report: &Report, has_rows: bool) -> Self {
        let sections = report.sections.iter().map(|section| SectionWords::of(section, has_rows));
        Self {
            title: Some(report.title.clone()),
            answer: Some(report.answer.clone()),
            notes: Some(report.notes.clone()),
            sections: Some(sections.collect()),
            ..Self::new()
        }
    }

    fn longest(&self) -> usize {
        let devices = self.devices.iter().map(DeviceFigures::longest);
        devices.chain(self.modules.iter().map(Vec::len)).max().unwrap_or(0)
    }

    /// Keeps the first rows of each table, and sums the others in one row where a sum is meaningful.
    fn first(&self, rows: usize, left_out: &LeftOut) -> Self {
        let mut part = Self { left_out: Some(left_out.to_string()), ..self.clone() };
        part.devices.iter_mut().for_each(|device| device.keep(rows));
        part.modules.iter_mut().for_each(|modules| modules.truncate(rows));
        part
    }

    fn text(&self, compact: bool) -> Result<String, Error> {
        if compact { text_as(self, serde_json::to_string) } else { text_of(self) }
    }
}

figures! {
    /// The texts of a table in a report.
    struct SectionWords(section: &Section, has_rows: bool) {
        /// Stable key of the table.
        key: Cow<'static, str> = section.key.clone(),
        /// Heading of the table.
        title: String = section.title.clone(),
        /// True if the sums of the table are estimates from a sample.
        estimate: bool = section.is_estimate,
        /// Lines above the table that say what it shows.
        about: Vec<String> = section.about.clone(),
        /// Lines below the table that say what follows from it.
        notes: Vec<String> = section.notes.clone(),
        /// Rows of the table. Absent if they are in `devices`, or if the section has only text.
        #[serde(skip_serializing_if = "Option::is_none")]
        rows: Option<NamedRows> = section.named.clone().filter(|_| has_rows),
    }
}
