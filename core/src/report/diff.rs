//! The report of a difference: the changes between two recordings, or between two moments of one.

use super::diff_rows::{COLUMNS, fill};
use super::section::Section;
use super::{Report, pairs};
use crate::analysis::{Diff, DiffRow, Key, LiveSet, Moment, OperatorPairs, difference};
use crate::error::Error;
use crate::recording::Recording;
use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};
use crate::units::{Bytes, signed};

/// Options of a difference.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// The tables, in this order. If empty: by line, operator, category and scope, or by operator alone if only one of
    /// the recordings is PyTorch's.
    pub keys: Vec<Key>,
    /// The device. If `None`, the main device of the second recording, in both. If the first recording does not have
    /// that device, the main device of each recording.
    pub device: Option<Device>,
    /// The moment of the first recording.
    pub before: Moment,
    /// The moment of the second recording.
    pub after: Moment,
    /// The most rows of a table.
    pub rows: usize,
    /// Rows that changed by fewer bytes are folded into one row.
    pub threshold: u64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            device: None,
            before: Moment::Peak,
            after: Moment::Peak,
            rows: 20,
            threshold: 64 << 10,
        }
    }
}

/// The tables if the options name none and both recordings are of the same kind: both PyTorch's, or neither.
const KEYS: [Key; 4] = [Key::Line, Key::Operator, Key::Category, Key::Scope];

impl Report {
    /// How much more or less memory the second recording holds than the first.
    ///
    /// # Errors
    /// If a recording does not have the device, or its log does not reach back to the moment.
    pub fn of_diff(before: &SnapshotData, after: &SnapshotData, options: &DiffOptions) -> Result<Self, Error> {
        let (before, after) = (Recording::new(before), Recording::new(after));
        let new = after.device_or_main(options.device);
        let new = new.ok_or_else(|| missing("the second recording", options.device))?;
        let any = || before.device_or_main(None).filter(|_| options.device.is_none());
        let old = before.device(new.device).or_else(any);
        let old = old.ok_or_else(|| missing("the first recording", Some(new.device)))?;
        let (old, new) = (old.at(&options.before)?, new.at(&options.after)?);
        let mut report = Self {
            title: title(&old, &new),
            answer: vec![total(options, old.total(), new.total())],
            ..Self::default()
        };
        report.answer.extend(reserved(options, old.device, new.device));
        let pairs = OperatorPairs::of(&old, &new);
        let keys: &[Key] = match &pairs {
            _ if !options.keys.is_empty() => &options.keys,
            Some(_) => &[Key::Operator],
            None => &KEYS,
        };
        for key in keys {
            let is_first = report.sections.is_empty();
            let mut add = |diff: &Diff, sections: Vec<Section>| {
                report.answer.extend(is_first.then(|| largest(diff.rows.first(), options.threshold, "")));
                report.sections.extend(sections);
            };
            if let (Key::Operator, Some(found)) = (key, &pairs) {
                add(&found.at_peak, pairs::sections(found, (&old, &new), (options.rows, options.threshold)));
            } else {
                let diff = Diff::of(&old, &new, *key);
                add(&diff, vec![section(*key, &diff, options)]);
            }
        }
        report.answer.extend(pairs.iter().filter(|_| keys.contains(&Key::Operator)).map(pairs::answer));
        report.notes.extend((old.device.is_sample() || new.device.is_sample()).then(sampled));
        Ok(report)
    }
}

fn missing(which: &str, device: Option<Device>) -> Error {
    let device = device.map_or("no device that allocated".to_owned(), |device| format!("nothing on {device}"));
    Error::moment(format!("{which} has {device}; choose another with --device"))
}

fn title(before: &LiveSet<'_>, after: &LiveSet<'_>) -> String {
    let of = |live: &LiveSet<'_>| (live.device.data().process.program.clone(), live.device.device);
    match (of(before), of(after)) {
        ((one, device), (other, same)) if one == other && device == same => {
            format!("memtrace: difference of {one} on {device}")
        }
        ((one, device), (other, same)) if device == same => {
            format!("memtrace: difference of {one} and {other} on {device}")
        }
        ((one, device), (other, another)) => {
            format!("memtrace: difference of {one} on {device} and {other} on {another}")
        }
    }
}

fn total(options: &DiffOptions, before: u64, after: u64) -> String {
    let words = if options.before == options.after {
        options.after.heading()
    } else {
        format!("{}, then {}", options.before.heading(), options.after.words())
    };
    if before == after {
        return format!("{words}: {} both times.", Bytes(before));
    }
    format!("{words}: {}", change(before, after))
}

/// A sentence on the most memory that the allocator reserved, if this differs between the two recordings.
fn reserved(options: &DiffOptions, old: &DeviceSnapshot, new: &DeviceSnapshot) -> Option<String> {
    let most = |device: &DeviceSnapshot| match device.pool {
        Some(pool) => pool.reserved_high,
        None => device.stats.reserved_bytes.peak,
    };
    let (before, after) = (most(old), most(new));
    let is_worth = new.device != Device::Cpu && before.abs_diff(after) >= options.threshold.max(1);
    is_worth.then(|| format!("Reserved at most: {}", change(before, after)))
}

fn change(before: u64, after: u64) -> String {
    change_of_two((before, ""), (after, ""))
}

/// A change, with a word about each side, such as which rank it belongs to.
pub(super) fn change_of_two((before, of_before): (u64, &str), (after, of_after): (u64, &str)) -> String {
    let change = difference(before, after);
    let percent = format!("{:+.1} %", 100.0 * change as f64 / before.max(1) as f64);
    let percent = match percent.as_str() {
        _ if before == 0 || change == 0 => String::new(),
        "+0.0 %" | "-0.0 %" => " (less than 0.1 %)".to_owned(),
        percent => format!(" ({percent})"),
    };
    format!("{} before{of_before}, {} after{of_after}: {}{percent}.", Bytes(before), Bytes(after), signed(change))
}

/// A sentence on the largest change, which is in the first row. `more` is appended to it.
pub(super) fn largest(first: Option<&DiffRow>, threshold: u64, more: &str) -> String {
    match first.filter(|row| is_large(row, threshold)) {
        Some(row) => format!("Largest change: {}, {} ({}){more}.", row.label, signed(row.change()), word(row)),
        None => format!("No row changed by {} or more.", Bytes(threshold)),
    }
}

fn is_large(row: &DiffRow, threshold: u64) -> bool {
    row.change() != 0 && row.change().unsigned_abs() >= threshold
}

pub(super) fn word(row: &DiffRow) -> &'static str {
    match (row.before, row.after) {
        (0, _) => "new",
        (_, 0) => "gone",
        (before, after) if after > before => "grown",
        _ => "shrunk",
    }
}

pub(super) fn sampled() -> String {
    "Small blocks were sampled: rows are estimates, and small changes may be chance.".to_owned()
}

fn section(key: Key, diff: &Diff, options: &DiffOptions) -> Section {
    let name = format!("diff_by_{}", key.word().replace('-', "_"));
    let mut section = Section::of_columns(name, format!("Change, by {}", key.words()), &COLUMNS);
    if let Some(last) = section.columns.last_mut() {
        *last = key.column();
    }
    fill_large(&mut section, &diff.rows.iter().collect::<Vec<_>>(), options);
    section
}

/// Fills a section with the largest of the rows that changed by at least the threshold, at most `options.rows`, and
/// folds the others into one row. Returns the number of rows that are shown.
pub(super) fn fill_large(section: &mut Section, rows: &[&DiffRow], options: &DiffOptions) -> usize {
    let large = rows.iter().filter(|row| is_large(row, options.threshold)).count();
    let shown = large.min(options.rows);
    let label = |row: &DiffRow| match word(row) {
        word @ ("new" | "gone") => format!("{} ({word})", row.label),
        _ => row.label.clone(),
    };
    fill(section, &rows[..shown], &rows[shown..], label);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    fn recording(seven: u64) -> SnapshotData {
        let mut story = Story::cpu();
        story.at(1_000).alloc("a", seven).on(LINE_7);
        story.at(2_000).alloc("b", 500).on(LINE_9);
        story.build()
    }

    #[test]
    fn the_answer_names_the_change_and_its_line() {
        let report = Report::of_diff(&recording(1 << 20), &recording(3 << 20), &DiffOptions::default()).unwrap();
        assert!(report.answer[0].contains("+2.000 MiB (+199.9 %)"), "{:?}", report.answer);
        assert_eq!(report.answer[1], "Largest change: src/model.rs:7 (Net::forward), +2.000 MiB (grown).");
        let first = &report.sections[0];
        assert_eq!(first.rows[0][0], Cell::Change(2 << 20));
        assert_eq!(first.rows.len(), 2, "what did not change is one row: {:?}", first.rows);
    }

    #[test]
    fn what_is_reserved_is_said_where_it_differs() {
        let recording = |bytes| {
            let mut story = Story::cuda(0);
            story.segment_alloc(1 << 30, bytes).alloc("a", 1000).address(1 << 30).on(LINE_7);
            story.build()
        };
        let answer =
            |bytes| Report::of_diff(&recording(20 << 20), &recording(bytes), &DiffOptions::default()).unwrap().answer;
        let expected = "Reserved at most: 20.00 MiB before, 42.00 MiB after: +22.00 MiB (+110.0 %).";
        assert!(answer(42 << 20).iter().any(|line| line == expected), "{:?}", answer(42 << 20));
        assert!(!answer(20 << 20).iter().any(|line| line.contains("Reserved")));
        assert_eq!(change(100_000, 99_999), "97.66 KiB before, 97.66 KiB after: -1 B (less than 0.1 %).");
    }

    #[test]
    fn equal_recordings_have_no_change() {
        let report = Report::of_diff(&recording(1 << 20), &recording(1 << 20), &DiffOptions::default()).unwrap();
        assert!(report.answer[0].ends_with("both times."), "{:?}", report.answer);
        assert_eq!(report.answer[1], "No row changed by 64.00 KiB or more.");
    }
}
