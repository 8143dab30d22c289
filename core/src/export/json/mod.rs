//! Report serializer: one JSON document with a schema, for a recording and for what a command prints of it.

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

/// The JSON's version: higher if a key is gone or has another meaning.
const VERSION: u32 = 2;

/// The report's numbers as JSON: every device with its peak, breakdowns, scopes, temporaries and counters. A sampled device
/// has `estimated` and `sampled`. [`Json::SCHEMA`] describes all keys; the value of `version` grows when a key is gone or has
/// another meaning.
#[derive(Clone, Debug)]
pub struct Json {
    /// One line instead of indented lines.
    pub compact: bool,
    /// The size to keep to: beyond it the smallest rows of each table are summed in one. 32 MiB by default, which no report of a
    /// program reaches; no limit if `None`.
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

/// A report as the JSON that [`Json::SCHEMA`] describes: its words, and of its recording the device and the tables that it
/// shows. A report that is not [`Report::of`] a recording, such as a difference, has its rows in `sections`.
///
/// # Errors
/// Never: text can always be written.
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
/// Never: text can always be written.
pub fn ranks_json(ranks: &analysis::Ranks, report: &Report) -> Result<String, Error> {
    Document { ranks: Some(Ranks::of(ranks)), ..Document::of_words(report, true) }.text(false)
}

/// The report of two jobs as the JSON that [`Json::SCHEMA`] describes.
///
/// # Errors
/// Never: text can always be written.
pub fn ranks_diff_json(diff: &analysis::RanksDiff, report: &Report) -> Result<String, Error> {
    let [ranks_before, ranks_after] = [&diff.before, &diff.after].map(|ranks| Some(Ranks::of(ranks)));
    Document { ranks_before, ranks_after, ..Document::of_words(report, true) }.text(false)
}

/// What the report of ranks has under `ranks`: those that stand out, and what is missing.
pub fn ranks_figures(ranks: &analysis::Ranks) -> impl Serialize {
    Ranks::of(ranks)
}

/// The report as JSON: bytes as integers, times in nanoseconds. `version` grows when a key is gone or has another meaning; new
/// keys may come without a new version.
#[derive(Clone, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "memtrace's report as JSON"))]
struct Document {
    /// Version of this schema.
    #[cfg_attr(test, schemars(extend("const" = VERSION)))]
    version: u32,
    /// Version of memtrace.
    recorded_by: &'static str,
    /// Program and device of a report in words; the whole of a recording has devices only.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// How much memory, when, where, and what for, in sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Vec<String>>,
    /// What limits the figures, and what was not seen, in sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<String>>,
    /// The devices that were used, the heap first; of a report the device that it is about. Empty for a difference and an
    /// explained line.
    devices: Vec<DeviceFigures>,
    /// The tables that the report shows, in its order. Where there is a device, it has their rows, `peak_by_line` under this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    sections: Option<Vec<SectionWords>>,
    /// Of a report of ranks: those that stand out, and what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<Ranks>,
    /// Of a difference of two jobs: the ranks of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks_before: Option<Ranks>,
    /// Of a difference of two jobs: the ranks of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks_after: Option<Ranks>,
    /// The parts that were left out to keep to a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(flatten)]
    recording: Option<Recording>,
    /// Loaded programs and libraries; absent in a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    modules: Option<Vec<Module>>,
}

impl Document {
    fn new() -> Self {
        Self { version: VERSION, recorded_by: concat!("memtrace ", env!("CARGO_PKG_VERSION")), ..Self::default() }
    }

    /// A report's words, and the rows of its sections, unless devices have them.
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

    /// The first rows of each table, the others summed in one where that has a meaning.
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
    /// The words around a table of a report.
    struct SectionWords(section: &Section, has_rows: bool) {
        /// Its stable key.
        key: Cow<'static, str> = section.key.clone(),
        /// Its heading.
        title: String = section.title.clone(),
        /// Its sums are estimates from a sample.
        estimate: bool = section.is_estimate,
        /// What the table shows.
        about: Vec<String> = section.about.clone(),
        /// What follows from it.
        notes: Vec<String> = section.notes.clone(),
        /// The rows, if they are not in `devices`.
        #[serde(skip_serializing_if = "Option::is_none")]
        rows: Option<NamedRows> = section.named.clone().filter(|_| has_rows),
    }
}
