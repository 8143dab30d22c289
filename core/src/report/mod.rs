//! The report: what a recording says, as sentences and tables of values. Texts, failures and pages only show it.

pub(crate) mod answer;
pub(crate) mod coverage;
pub(crate) mod device_memory;
mod findings;
mod notes;
mod post_mortem;
pub(crate) mod sampled;
mod section;
mod summary;
mod tables;

pub use findings::{Cost, Finding, findings};
pub use section::{Cell, Column, Section};

use crate::analysis::{Moment, Shown, TABLES, device_or_main};
use crate::error::Error;
use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};

/// What a report is to have.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Which device; the one with the largest peak if `None`.
    pub device: Option<Device>,
    /// Rows in a table, at most; what is left out is summed in a last row.
    pub rows: usize,
    /// The sections by their keys, such as `peak_by_line`; all that have something to say if there are none. The error about
    /// an unknown one lists them.
    pub sections: Vec<String>,
    /// The moment of which it is: the peak, if nothing else is said.
    pub moment: Moment,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self { device: None, rows: 20, sections: Vec::new(), moment: Moment::Peak }
    }
}

/// What a recording says of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Of which program and device.
    pub title: String,
    /// In some sentences: how much, when, where, of what.
    pub answer: Vec<String>,
    /// What could be better, the most expensive first.
    pub findings: Vec<Finding>,
    /// What decides whether the figures can be believed, and what was not seen.
    pub notes: Vec<String>,
    /// The device's totals: what they are called, and the figure.
    pub totals: Vec<(&'static str, String)>,
    /// The tables.
    pub sections: Vec<Section>,
}

impl Report {
    /// The report of a recording.
    ///
    /// # Errors
    /// If the log does not reach back to the moment, or there is no such scope or section. The peak and the end are always known.
    pub fn of(data: &SnapshotData, options: &ReportOptions) -> Result<Self, Error> {
        if let Some(key) = options.sections.iter().find(|key| !is_key(key)) {
            return Err(Error::section(key, &keys().collect::<Vec<_>>()));
        }
        let device = device_or_main(data, options.device);
        let Some(device) = device.filter(|device| device.peak.total() > 0 || device.stats.num_ooms > 0) else {
            return Ok(Self { notes: notes::notes(data), ..nothing(data) });
        };
        let mut report = match &options.moment {
            Moment::Peak => Self::of_device(data, device, options),
            moment => Self::of_moment(data, device, moment, options)?,
        };
        report
            .sections
            .retain(|section| options.sections.is_empty() || options.sections.iter().any(|key| key == section.key));
        Ok(report)
    }

    /// What was held at another moment than the peak.
    fn of_moment(
        data: &SnapshotData,
        device: &DeviceSnapshot,
        moment: &Moment,
        options: &ReportOptions,
    ) -> Result<Self, Error> {
        let then = moment.of(data, device)?;
        let shown = &[Shown::Always, Shown::InReports, Shown::InFailures, Shown::AtMoments];
        let on = coverage::device_name(data, device.device);
        Ok(Self {
            title: format!("memtrace: memory of {} on {on}", data.process.program),
            answer: answer::of_moment(data, &then, moment),
            notes: [moment.notes(data, device), notes::notes(data)].concat(),
            sections: tables::sections(data, &then, shown, options),
            ..Self::default()
        })
    }

    fn of_device(data: &SnapshotData, device: &DeviceSnapshot, options: &ReportOptions) -> Self {
        let on = coverage::device_name(data, device.device);
        let mut sections = tables::sections(data, device, &[Shown::Always, Shown::InReports], options);
        sections.extend(tables::scopes(data, device, options));
        sections.extend(tables::temporaries(data, device, options));
        sections.extend(tables::twice(data, device, options));
        sections.extend(device_memory::sections(data, device));
        sections.extend(tables::sections(data, device, &[Shown::AtEnd], options));
        debug_assert!(sections.iter().all(|section| is_key(section.key)), "an error lists all sections that there are");
        Self {
            title: format!("memtrace: memory of {} on {on}", data.process.program),
            answer: answer::answer(data, device),
            findings: findings(data, device),
            notes: notes::notes(data),
            totals: summary::totals(data, device),
            sections,
        }
    }

    /// Why a device's last allocation was refused, and what would help; `None` if it refused nothing.
    pub fn of_refusal(data: &SnapshotData, device: Device) -> Option<Self> {
        data.device(device).and_then(|device| post_mortem::report(data, device))
    }

    /// What held a device's peak, for a failed assertion: tables alone.
    pub fn of_failure(data: &SnapshotData, device: Device, rows: usize) -> Self {
        let options = ReportOptions { device: Some(device), rows, ..ReportOptions::default() };
        let shown = &[Shown::Always, Shown::InFailures];
        let sections = device_or_main(data, Some(device)).map(|device| tables::sections(data, device, shown, &options));
        Self { sections: sections.unwrap_or_default(), ..Self::default() }
    }
}

/// The keys of all sections that there are.
fn keys() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.key).chain(tables::KEYS).chain(device_memory::KEYS)
}

fn is_key(key: &str) -> bool {
    keys().any(|known| known == key)
}

/// Where nothing was recorded there is one thing to say.
fn nothing(data: &SnapshotData) -> Report {
    let no_allocator = [
        "The heap was not seen, because memtrace's allocator is not in the program. Put this into it:",
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
