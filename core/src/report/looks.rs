//! The picture of recordings that grow: one line a rank, and of one rank what is live on each device.

use super::tables::more;
use super::{Cell, Report, Section};
use crate::analysis::{DeviceLook, DevicePeak, Key, LookOrder, LookRow, Looks};
use crate::units::Bytes;

/// A file that is watched.
#[derive(Clone, Debug, Default)]
pub struct WatchedFile {
    /// Its name.
    pub file: String,
    /// What was seen of it; `None` until it has been read.
    pub looks: Option<Looks>,
    /// Why it could not be read the last time.
    pub problem: Option<String>,
    /// Nobody writes it any more.
    pub has_ended: bool,
}

/// What of it is shown.
#[derive(Clone, Debug, Default)]
pub struct LookOptions {
    /// What the rows stand for.
    pub by: Key,
    /// The order of the rows.
    pub order: LookOrder,
    /// Only rows with this text in their labels, in whatever case.
    pub filter: String,
    /// The rank whose rows are shown.
    pub chosen: usize,
    /// The most rows of a table of ranks.
    pub ranks: usize,
    /// The most rows of a table of a device.
    pub rows: usize,
    /// Characters in a line: narrow pictures have fewer columns.
    pub width: usize,
}

/// Characters from which on a picture shows two figures of a row, and all.
const ROOM: [usize; 2] = [50, 76];

impl Report {
    /// The picture of recordings.
    pub fn of_looks(files: &[WatchedFile], options: &LookOptions) -> Self {
        let Some(chosen) = files.get(options.chosen).or_else(|| files.first()) else { return Self::default() };
        let mut report = Self { title: title(chosen), ..Self::default() };
        if files.len() > 1 {
            report.sections.push(ranks(files, options));
        }
        report.answer = state(chosen);
        if let Some(looks) = &chosen.looks {
            let name = if files.len() > 1 { format!(" of {}", looks.last().rank.name()) } else { String::new() };
            let table = |device: &DeviceLook| device_section(looks, device, &name, options);
            report.sections.extend(looks.last().devices.iter().map(table));
        }
        report
    }
}

fn title(file: &WatchedFile) -> String {
    let Some(looks) = &file.looks else { return format!("memtrace: {}", file.file) };
    let rank = &looks.last().rank;
    let process = if rank.has_process() { format!(", process {}", rank.process.pid) } else { String::new() };
    format!("memtrace: live memory of {}{process}, after {}", rank.process.program, seconds(looks.last().time_ns()))
}

/// What is to be known before the figures are read.
fn state(file: &WatchedFile) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(problem) = &file.problem {
        lines.push(format!("Not read: {problem}"));
    }
    let Some(looks) = &file.looks else { return lines };
    let last = looks.last();
    match (file.has_ended, last.rank.is_cut_off) {
        (true, true) => lines.push("The process was killed: this is the state at its last commit.".to_owned()),
        (true, false) => lines.push("The process has ended: this is the state at its end.".to_owned()),
        (false, _) => {}
    }
    if last.devices.is_empty() {
        lines.push("Nothing is recorded yet.".to_owned());
    }
    lines
}

/// `12.345 s`
fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

fn ranks(files: &[WatchedFile], options: &LookOptions) -> Section {
    let all = ["Rank", "Device", "Live", "Peak", "Headroom", "Recording"];
    let columns: &[&'static str] = if options.width < ROOM[1] { &["Rank", "Live", "Recording"] } else { &all };
    let mut section = Section::of_columns("ranks", "Ranks", columns);
    let shown = around(options.chosen, files.len(), options.ranks);
    for at in shown.clone() {
        let mut cells = rank_cells(&files[at], at == options.chosen);
        if columns.len() < all.len() {
            cells = [0, 2, 5].into_iter().filter_map(|at| cells.get(at).cloned()).collect();
        }
        section.rows.push(cells);
    }
    if shown.len() < files.len() {
        section.partial_row(Vec::new(), format!("({} more ranks)", files.len() - shown.len()));
    }
    section
}

/// So many positions of all, with the chosen one near their middle.
fn around(chosen: usize, all: usize, most: usize) -> std::ops::Range<usize> {
    let first = chosen.saturating_sub(most / 2).min(all.saturating_sub(most));
    first..all.min(first + most.max(1))
}

fn rank_cells(file: &WatchedFile, is_chosen: bool) -> Vec<Cell> {
    let mark = if is_chosen { ">" } else { "" };
    let look = file.looks.as_ref().map(Looks::last);
    let main = look.and_then(|look| look.devices.first());
    let rank = look.and_then(|look| look.rank.process.rank).map_or("-".to_owned(), |rank| rank.to_string());
    let end = match (file.has_ended, look.is_some_and(|look| look.rank.is_cut_off), &file.problem) {
        (_, _, Some(_)) => " (not read)",
        (true, true, _) => " (killed)",
        (true, false, _) => " (ended)",
        (false, ..) => "",
    };
    let figure = |of: fn(&DeviceLook) -> u64| main.map_or(Cell::Unknown, |main| Cell::Sum(of(main)));
    vec![
        Cell::Text(format!("{mark}{rank}")),
        main.map_or(Cell::Unknown, |main| Cell::Text(main.peak.device.to_string())),
        figure(|main| main.live),
        figure(|main| main.peak.bytes),
        main.and_then(|main| main.peak.headroom()).map_or(Cell::Unknown, Cell::Signed),
        Cell::Text(format!("{}{end}", file.file)),
    ]
}

fn device_section(looks: &Looks, device: &DeviceLook, name: &str, options: &LookOptions) -> Section {
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
        [(folded, more(folded.len())), (&other, format!("({} rows without the filter's text)", other.len()))]
    {
        if !rows.is_empty() {
            section.rows.push(cells(&sum(rows), figures, label));
        }
    }
}

fn cells(row: &LookRow, figures: &[Figure], label: String) -> Vec<Cell> {
    figures.iter().map(|figure| figure.cell(row)).chain([Cell::Text(label)]).collect()
}

/// What several rows are together.
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

/// The figures that there is room for: always the one that rows are sorted by. Without an earlier look there is no growth.
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

/// `1.200 GiB live, peak 2.000 GiB, headroom 22.00 GiB of 24.00 GiB; pools have reserved 1.500 GiB`
fn totals(device: &DeviceLook) -> String {
    let DevicePeak { bytes, capacity, .. } = device.peak;
    let mut line = format!("{} live, peak {}", Bytes(device.live), Bytes(bytes));
    if let (Some(headroom), Some(capacity)) = (device.peak.headroom(), capacity) {
        let sign = if headroom < 0 { "-" } else { "" };
        line += &format!(", headroom {sign}{} of {}", Bytes(headroom.unsigned_abs()), Bytes(capacity));
    }
    if let Some(reserved) = device.reserved {
        line += &format!("; reserved {}", Bytes(reserved));
    }
    line
}
