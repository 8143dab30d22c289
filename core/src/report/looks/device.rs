//! The table of what is live on a device, and how much it grew.

use super::options::{LookOptions, ROOM, seconds};
use crate::analysis::{DeviceLook, DevicePeak, Key, LookOrder, LookRow, Looks};
use crate::report::tables::more;
use crate::report::{Cell, Section};
use crate::units::{Bytes, with_minus};

pub(super) fn section(looks: &Looks, device: &DeviceLook, name: &str, options: &LookOptions) -> Section {
    let all = looks.rows(device.peak.device, options.by, options.order);
    let title = format!("Live on {}{name}, by {}", device.peak.device, options.by.words());
    let figures = figures(options, looks.since_ns(options.by).is_some());
    let columns: Vec<&'static str> =
        figures.iter().map(|figure| figure.column()).chain([options.by.column()]).collect();
    let mut section = Section::of_columns("live", title, &columns);
    section.is_estimate = device.is_sample;
    section.about = vec![totals(device)];
    if all.is_empty() {
        section.notes.push(unknown(looks, options.by).to_owned());
        return section;
    }
    if let Some(since) = looks.since_ns(options.by).filter(|_| options.width >= ROOM[1]) {
        section.about.push(format!("Growth since the last look, and since the first one at {}", seconds(since)));
    }
    add_rows(&mut section, &all, &figures, options);
    section
}

fn unknown(looks: &Looks, key: Key) -> &'static str {
    if looks.last().keys.contains(&key) { "(nothing)" } else { "(not known by this key at this moment)" }
}

fn add_rows(section: &mut Section, all: &[LookRow], figures: &[Figure], options: &LookOptions) {
    let filter = options.filter.to_lowercase();
    let (found, other): (Vec<&LookRow>, Vec<&LookRow>) =
        all.iter().partition(|row| row.label.to_lowercase().contains(&filter));
    let (shown, folded) = found.split_at(options.rows.min(found.len()));
    for row in shown {
        section.rows.push(cells(row, figures, row.label.clone()));
    }
    for (rows, label) in
        [(folded, more(folded.len())), (&other, format!("({} rows not matching the filter)", other.len()))]
    {
        if !rows.is_empty() {
            section.rows.push(cells(&sum(rows), figures, label));
        }
    }
}

fn cells(row: &LookRow, figures: &[Figure], label: String) -> Vec<Cell> {
    figures.iter().map(|figure| figure.cell(row)).chain([Cell::Text(label)]).collect()
}

/// The sum of several rows.
fn sum(rows: &[&LookRow]) -> LookRow {
    let grown = |of: fn(&LookRow) -> Option<i64>| rows.iter().map(|row| of(row)).sum();
    LookRow {
        label: String::new(),
        bytes: rows.iter().map(|row| row.bytes).sum(),
        count: rows.iter().map(|row| row.count).sum(),
        since_last: grown(|row| row.since_last),
        since_first: grown(|row| row.since_first),
    }
}

/// A column of a device's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Live,
    SinceLast,
    SinceFirst,
    Blocks,
}

impl Figure {
    fn column(self) -> &'static str {
        match self {
            Self::Live => "Live",
            Self::SinceLast => "Last look",
            Self::SinceFirst => "Growth",
            Self::Blocks => "Blocks",
        }
    }

    fn cell(self, row: &LookRow) -> Cell {
        match self {
            Self::Live => Cell::Sum(row.bytes),
            Self::SinceLast => row.since_last.map_or(Cell::Unknown, Cell::Change),
            Self::SinceFirst => row.since_first.map_or(Cell::Unknown, Cell::Change),
            Self::Blocks => row.count.map_or(Cell::Unknown, Cell::Count),
        }
    }
}

/// The columns for which there is room, and always the one by which rows are sorted. But without an earlier look there
/// are no growth columns.
fn figures(options: &LookOptions, has_growth: bool) -> Vec<Figure> {
    let sorted_by = match options.order {
        LookOrder::Bytes => Figure::Live,
        LookOrder::Growth => Figure::SinceFirst,
        LookOrder::Count => Figure::Blocks,
    };
    let beside_live = if sorted_by == Figure::Live { Figure::SinceFirst } else { sorted_by };
    let mut figures = match options.width {
        width if width < ROOM[0] => vec![sorted_by],
        width if width < ROOM[1] => vec![Figure::Live, beside_live],
        _ => vec![Figure::Live, Figure::SinceLast, Figure::SinceFirst, Figure::Blocks],
    };
    figures.retain(|figure| has_growth || !matches!(figure, Figure::SinceLast | Figure::SinceFirst));
    figures
}

/// `1.200 GiB live, peak 2.000 GiB, headroom 22.00 GiB of 24.00 GiB; reserved 1.500 GiB`
fn totals(device: &DeviceLook) -> String {
    let DevicePeak { bytes, capacity, .. } = device.peak;
    let mut line = format!("{} live, peak {}", Bytes(device.live), Bytes(bytes));
    if let (Some(headroom), Some(capacity)) = (device.peak.headroom(), capacity) {
        line += &format!(", headroom {} of {}", with_minus(headroom), Bytes(capacity));
    }
    if let Some(reserved) = device.reserved {
        line += &format!("; reserved {}", Bytes(reserved));
    }
    line
}
