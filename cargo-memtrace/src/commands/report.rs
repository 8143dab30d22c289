//! `report`, `advise`, `leaks` and `temporaries`: parts of one report.

use memtrace_core::analysis::Moment;
use memtrace_core::report::{Report, ReportOptions};

use super::section;
use crate::cli::{ReadingArgs, ReportArgs};
use crate::failure::CommandFailure;
use crate::input::RecordingFile;
use crate::progress::Progress;
use crate::{input, output};

pub(crate) fn report(args: &ReportArgs) -> Result<(), CommandFailure> {
    let sections = args.by.iter().map(|by| section(*by).to_owned()).collect();
    show(&args.reading, args.at.clone(), sections)
}

pub(crate) fn leaks(reading: &ReadingArgs) -> Result<(), CommandFailure> {
    show(reading, Moment::End, Vec::new())
}

pub(crate) fn temporaries(reading: &ReadingArgs) -> Result<(), CommandFailure> {
    let recording = input::read_selected(reading.file.as_deref(), &reading.selection)?;
    let options = options(reading, Moment::Peak, vec!["temporaries".to_owned()]);
    let mut report = report_of(&recording, &options)?;
    (report.findings, report.totals) = (Vec::new(), Vec::new());
    if report.sections.is_empty() {
        report.answer = vec!["No block was freed soon after it was allocated.".to_owned()];
    }
    output::print(&report, Some((&recording.data, &options)), &reading.selection)
}

pub(crate) fn advise(reading: &ReadingArgs) -> Result<(), CommandFailure> {
    let recording = input::read_selected(reading.file.as_deref(), &reading.selection)?;
    let options = options(reading, Moment::Peak, Vec::new());
    let mut report = Report::of(&recording.data, &options)?;
    (report.sections, report.totals, report.notes) = (Vec::new(), Vec::new(), Vec::new());
    if report.findings.is_empty() {
        report.answer.push("Nothing that memtrace knows of could be better.".to_owned());
    }
    output::print(&report, Some((&recording.data, &options)), &reading.selection)
}

fn show(reading: &ReadingArgs, moment: Moment, sections: Vec<String>) -> Result<(), CommandFailure> {
    let recording = input::read_selected(reading.file.as_deref(), &reading.selection)?;
    let options = options(reading, moment, sections);
    let mut report = report_of(&recording, &options)?;
    report.notes.splice(0..0, recording.notes);
    output::print(&report, Some((&recording.data, &options)), &reading.selection)
}

fn report_of(recording: &RecordingFile, options: &ReportOptions) -> Result<Report, CommandFailure> {
    let _progress = Progress::of("computing the report");
    Ok(Report::of(&recording.data, options)?)
}

fn options(reading: &ReadingArgs, moment: Moment, sections: Vec<String>) -> ReportOptions {
    ReportOptions { device: reading.selection.device, rows: reading.selection.top, sections, moment }
}
