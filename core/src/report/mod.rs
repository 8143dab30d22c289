//! The report as values: sentences and tables. Text, JSON, failed assertions and the page render it.

pub(crate) mod answer;
pub(crate) mod coverage;
pub(crate) mod device_memory;
mod diff;
mod diff_rows;
mod explain;
mod findings;
mod fit;
mod growth;
mod host_memory;
mod looks;
mod notes;
mod pairs;
mod plan;
mod post_mortem;
mod ranks;
mod rows;
pub(crate) mod sampled;
mod section;
mod summary;
mod tables;
mod what_if;

pub(crate) use answer::{holders, line_key};
pub use diff::DiffOptions;
pub use findings::{Confidence, Cost, Finding, FindingKind, findings, planned};
pub use fit::{drift_section, fit_line, fit_section};
pub use growth::{growth_answer, growth_section};
pub use looks::{LookOptions, WatchedFile};
pub use plan::{plan_answer, plan_section};
pub(crate) use ranks::rows::{GpuRow, RankRow};
pub(crate) use ranks::{ALL_RANKS, ITS_CHANGE, LARGEST_ROW};
pub use ranks::{counted as counted_ranks, missing_ranks, rank_names};
pub(crate) use rows::{NamedRows, Row};
pub use section::{Cell, Section};
pub(crate) use tables::{CUMULATIVE, TEMPORARY, shown_scopes};
pub use what_if::{packing_line, what_if_answer, what_if_choice, what_if_holders, what_if_notes, what_if_section};

use crate::analysis::{Moment, ON_REQUEST, Shown, TABLES};
use crate::error::Error;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{Device, SnapshotData};

/// The contents of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The device; if `None`, the main device.
    pub device: Option<Device>,
    /// Maximum number of rows of a table; a last row sums the others.
    pub rows: usize,
    /// Keys of the sections to show, such as `peak_by_line`. If empty, every section that has content is shown. The
    /// error about an unknown key lists all keys.
    pub sections: Vec<String>,
    /// The moment to report.
    pub moment: Moment,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self { device: None, rows: 20, sections: Vec::new(), moment: Moment::Peak }
    }
}

/// The report on a device. Each of its texts is one line. Control characters in a text come from the recording;
/// renderers escape them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Program and device.
    pub title: String,
    /// How much memory the peak held, when, where, and of which categories.
    pub answer: Vec<String>,
    /// What could be better, most expensive first.
    pub findings: Vec<Finding>,
    /// What limits the figures, and what was not seen.
    pub notes: Vec<String>,
    /// The device's totals: label and figure.
    pub totals: Vec<(&'static str, String)>,
    /// The tables.
    pub sections: Vec<Section>,
}

impl Report {
    /// The report of a recording.
    ///
    /// # Errors
    /// If the log does not reach back to the moment, or the scope or section does not exist. The peak and the end never
    /// fail.
    pub fn of(data: &SnapshotData, options: &ReportOptions) -> Result<Self, Error> {
        Self::of_recording(&Recording::new(data), options)
    }

    pub(crate) fn of_recording(recording: &Recording<'_>, options: &ReportOptions) -> Result<Self, Error> {
        if let Some(key) = options.sections.iter().find(|key| !is_key(key)) {
            return Err(Error::section(key, &keys().collect::<Vec<_>>()));
        }
        let device = recording.device_or_main(options.device);
        let Some(device) = device.filter(|device| device.peak.total() > 0 || device.stats.num_ooms > 0) else {
            return Ok(Self { notes: notes::notes(recording), ..nothing(recording) });
        };
        let mut report = match &options.moment {
            Moment::Peak => Self::of_device(recording, device, options),
            moment => Self::of_moment(recording, device, moment, options)?,
        };
        report
            .sections
            .retain(|section| options.sections.is_empty() || options.sections.iter().any(|key| *key == section.key));
        Ok(report)
    }

    /// What a first look shows: title, answer, findings, and why names are missing.
    ///
    /// # Errors
    /// Never, because the peak is always known.
    #[doc(hidden)]
    pub fn first_look(data: &SnapshotData) -> Result<Self, Error> {
        let Self { title, answer, findings, sections, .. } = Self::of(data, &ReportOptions::default())?;
        let recording = Recording::new(data);
        let notes = recording.device_or_main(None).map_or_else(Vec::new, notes::missing_names);
        Ok(Self { title, answer, findings, notes, sections, ..Self::default() })
    }

    fn of_moment(
        recording: &Recording<'_>,
        device: &DeviceView<'_>,
        moment: &Moment,
        options: &ReportOptions,
    ) -> Result<Self, Error> {
        let then = device.at(moment)?;
        let shown = &[Shown::Always, Shown::InReports, Shown::InFailures, Shown::AtMoments];
        let on = coverage::device_name(recording, device.device);
        Ok(Self {
            title: format!("memtrace: memory of {} on {on}", recording.process.program),
            answer: answer::of_moment(&then, moment),
            notes: [moment.notes(&then), notes::notes(recording)].concat(),
            totals: summary::process_memory(recording),
            sections: tables::sections(&then, shown, options),
            ..Self::default()
        })
    }

    fn of_device(recording: &Recording<'_>, device: &DeviceView<'_>, options: &ReportOptions) -> Self {
        let on = coverage::device_name(recording, device.device);
        let at_peak = device.at_peak();
        let mut sections = tables::sections(&at_peak, &[Shown::Always, Shown::InReports], options);
        sections.extend(tables::scopes(device, options));
        sections.extend(tables::temporaries(device, options));
        sections.extend(tables::twice(device, options));
        sections.extend(tables::older_times(device, options));
        sections.extend(device_memory::sections(device));
        sections.extend(host_memory::sections(device));
        sections.extend(tables::sections(&at_peak, &[Shown::AtEnd], options));
        debug_assert!(
            sections.iter().all(|section| is_key(&section.key)),
            "an error lists all sections that there are"
        );
        Self {
            title: format!("memtrace: memory of {} on {on}", recording.process.program),
            answer: answer::answer(device),
            findings: findings(device),
            notes: notes::notes(recording),
            totals: summary::totals(device),
            sections,
        }
    }

    /// The post-mortem of a device's last refused allocation; `None` if it refused none.
    pub fn of_refusal(data: &SnapshotData, device: Device) -> Option<Self> {
        Recording::new(data).device(device).and_then(post_mortem::report)
    }

    /// The tables of a failed assertion: what held a device's peak.
    pub fn of_failure(data: &SnapshotData, device: Device, rows: usize) -> Self {
        let options = ReportOptions { device: Some(device), rows, ..ReportOptions::default() };
        let shown = &[Shown::Always, Shown::InFailures];
        let recording = Recording::new(data);
        let at_peak = recording.device(device).map(DeviceView::at_peak);
        let sections = at_peak.map(|live| tables::sections(&live, shown, &options));
        Self { sections: sections.unwrap_or_default(), ..Self::default() }
    }
}

fn keys() -> impl Iterator<Item = &'static str> {
    TABLES
        .iter()
        .chain(&ON_REQUEST)
        .map(|table| table.key)
        .chain(tables::KEYS)
        .chain(device_memory::KEYS)
        .chain(host_memory::KEYS)
}

fn is_key(key: &str) -> bool {
    keys().any(|known| known == key)
}

/// The report of a recording without any recorded memory.
fn nothing(data: &SnapshotData) -> Report {
    let no_allocator = [
        "The heap was not seen, because memtrace's allocator is not installed. Add to the program:",
        "    #[global_allocator]",
        "    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();",
    ];
    let answer = no_allocator.iter().filter(|_| data.health.no_allocator).map(|line| (*line).to_owned()).collect();
    Report { title: "memtrace: nothing was recorded".to_owned(), answer, ..Report::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn sections_are_chosen_by_key_and_an_unknown_one_is_an_error_that_lists_them() {
        let data = two_lines_and_a_temporary();
        let report =
            |key: &str| Report::of(&data, &ReportOptions { sections: vec![key.to_owned()], ..Default::default() });
        for key in keys() {
            assert!(report(key).unwrap().sections.iter().all(|section| section.key == key));
        }
        assert_eq!(report("temporaries").unwrap().sections.len(), 1);
        let error = report("peak_by_lines").unwrap_err().to_string();
        assert!(error.starts_with("no section is called `peak_by_lines`; there are peak_by_line, "), "{error}");
    }
}
