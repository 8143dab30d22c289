//! Report renderer: plain text for terminals and files.

use std::fmt::Write as _;
use std::io::Write;

use super::table::{Cut, TextTable};
use super::{Export, LeftOut};
use crate::analysis::Part;
use crate::error::Error;
use crate::report::{
    ALL_RANKS, CUMULATIVE, Cell, ITS_CHANGE, LARGEST_ROW, Report, ReportOptions, Section, TEMPORARY, device_memory,
    sampled,
};
use crate::snapshot::{Device, SnapshotData};
use crate::units::{Bytes, grouped, signed, with_minus};
use crate::visible;

/// From this width on, a table also shows the columns that are not essential.
const ROOM_FOR_ALL: usize = 110;
const NOT_NEEDED: [&str; 5] = [CUMULATIVE, LARGEST_ROW, ALL_RANKS, ITS_CHANGE, TEMPORARY];

/// The report as text. Control characters are escaped, as `\u{1b}`.
#[derive(Clone, Debug)]
pub struct Text {
    /// Characters per line of a table; longer labels are cut. No limit by default; terminals have 80.
    pub width: usize,
    /// Bold headings, with ANSI escape codes.
    pub color: bool,
    /// The report's options.
    pub report: ReportOptions,
}

impl Default for Text {
    fn default() -> Self {
        Self { width: usize::MAX, color: false, report: ReportOptions::default() }
    }
}

impl Text {
    /// Renders the report of a recording.
    ///
    /// # Errors
    /// If the recording does not know the moment of the options.
    pub fn render(&self, data: &SnapshotData) -> Result<String, Error> {
        Ok(self.show(&Report::of(data, &self.report)?))
    }

    /// Renders any report.
    pub fn show(&self, report: &Report) -> String {
        let mut page = Page { text: String::new(), options: self };
        page.begin(report);
        report.sections.iter().for_each(|section| page.section(section));
        page.text
    }
}

impl Export for Text {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        out.write_all(self.render(data)?.as_bytes())?;
        Ok(LeftOut::default())
    }
}

/// The lines that held most of a device's peak, for the message of a failed assertion.
pub fn at_peak(data: &SnapshotData, device: Device, rows: usize) -> String {
    let options = Text { width: 100, ..Text::default() };
    options.show(&Report::of_failure(data, device, rows))
}

struct Page<'a> {
    text: String,
    options: &'a Text,
}

impl Page<'_> {
    fn begin(&mut self, report: &Report) {
        if !report.title.is_empty() {
            self.heading(&report.title);
        }
        report.answer.iter().for_each(|line| self.line(line));
        if !report.findings.is_empty() {
            self.heading("Findings");
            let lines = report.findings.iter().zip(1..).flat_map(|(finding, number)| finding.lines(number));
            lines.for_each(|line| self.line(&line));
        }
        if !report.notes.is_empty() {
            self.heading("Notes");
            report.notes.iter().for_each(|note| self.line(note));
        }
        if !report.totals.is_empty() {
            self.heading("Totals");
            let width = report.totals.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(15);
            report.totals.iter().for_each(|(name, figure)| self.line(&format!("{name:width$}  {figure}")));
        }
    }

    fn section(&mut self, section: &Section) {
        let estimates = if section.is_estimate { " (estimates)" } else { "" };
        self.heading(&format!("{}{estimates}", section.title));
        section.about.iter().for_each(|line| self.line(line));
        if !section.rows.is_empty() {
            self.table(section);
        }
        section.notes.iter().for_each(|line| self.line(line));
    }

    fn table(&mut self, section: &Section) {
        let titles = &section.columns;
        let cut = if titles.last() == Some(&"Location") { Cut::Start } else { Cut::End };
        let has_room = |title: &str| self.options.width >= ROOM_FOR_ALL || is_needed(title);
        let shown: Vec<usize> = (0..titles.len()).filter(|at| has_room(titles[*at])).collect();
        let mut table = TextTable::new(&shown.iter().map(|at| titles[*at]).collect::<Vec<_>>(), cut);
        let about = if section.is_estimate { sampled::ABOUT } else { "" };
        for row in &section.rows {
            table.row(shown.iter().filter_map(|at| row.get(*at)).map(|cell| cell_text(cell, about)).collect());
        }
        // A table cuts its labels itself.
        table.lines(self.options.width).iter().for_each(|line| _ = writeln!(self.text, "{line}"));
    }

    fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (on, off) = if self.options.color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(self.text, "{on}{}{off}", visible::line(text));
    }

    /// Writes a sentence, wrapped at the width. Continuation lines have the indentation of the first.
    fn line(&mut self, text: &str) {
        let indent = text.len() - text.trim_start().len();
        let mut rest = visible::line(text).into_owned();
        while let Some((at, _)) = rest.char_indices().nth(self.options.width) {
            let within = rest.get(indent..=at).unwrap_or_default();
            let space = indent + within.trim_end_matches(|c| c != ' ').trim_end().len();
            if space == indent {
                break;
            }
            let (line, after) = rest.split_at(space);
            self.text.push_str(line);
            self.text.push('\n');
            rest = " ".repeat(indent) + after.trim_start();
        }
        self.text.push_str(&rest);
        self.text.push('\n');
    }
}

fn is_needed(title: &str) -> bool {
    let mut parts = [Part::Parameters, Part::OptimizerState, Part::Other].into_iter();
    !NOT_NEEDED.contains(&title) && parts.all(|part| part.word() != title)
}

pub(super) fn cell_text(cell: &Cell, about: &str) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Unknown => "-".to_owned(),
        Cell::Bytes(bytes) => Bytes(*bytes).to_string(),
        Cell::Sum(bytes) => format!("{about}{}", Bytes(*bytes)),
        Cell::Signed(bytes) => with_minus(*bytes),
        Cell::Change(bytes) => signed(*bytes),
        Cell::Exactly(bytes) => format!("{}{}", if *bytes < 0 { "-" } else { "" }, grouped(bytes.unsigned_abs())),
        Cell::Count(count) => grouped(*count),
        Cell::Share { whole: 0, .. } => "-".to_owned(),
        Cell::Share { part, whole } => format!("{:.1}", 100.0 * *part as f64 / *whole as f64),
        Cell::Time(ns) => device_memory::time(*ns),
        Cell::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_all_parts_fits_on_a_terminal() {
        let columns: Vec<&'static str> =
            Part::ALL.iter().map(|part| part.word()).chain([TEMPORARY, "Location"]).collect();
        let mut section = Section::of_columns("parts", "Parts", &columns);
        section.partial_row(
            vec![Cell::Sum(1023 << 20); Part::ALL.len() + 1],
            "examples/resnet/model.rs:105 (forward)".into(),
        );
        let lines = |width: usize| {
            let options = Text { width, ..Text::default() };
            let mut page = Page { text: String::new(), options: &options };
            page.table(&section);
            page.text
        };
        assert!(lines(80).lines().all(|line| line.chars().count() <= 80), "{}", lines(80));
        assert!(lines(80).contains("model.rs:105") && lines(80).contains("Backward") && !lines(80).contains("Other"));
        assert!(lines(ROOM_FOR_ALL).contains("Other") && lines(ROOM_FOR_ALL).contains("model.rs:105"));
    }

    #[test]
    fn sentences_are_wrapped_at_spaces_and_keep_their_indentation() {
        let wrapped = |width: usize, text: &str| {
            let options = Text { width, ..Text::default() };
            let mut page = Page { text: String::new(), options: &options };
            page.line(text);
            page.text
        };
        assert_eq!(wrapped(10, "one two three four"), "one two\nthree four\n");
        assert_eq!(wrapped(10, "  é two three fo"), "  é two\n  three fo\n");
        assert_eq!(wrapped(7, "one two"), "one two\n");
        assert_eq!(wrapped(4, "unbreakable word"), "unbreakable word\n", "a long word is not cut");
        assert_eq!(wrapped(usize::MAX, "a  b"), "a  b\n");
    }
}
