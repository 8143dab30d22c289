//! The report that compares two jobs: each rank before and after, rows over all ranks, and what is missing on either
//! side.

use super::super::diff::{change_of_two, fill_large, largest, sampled};
use super::super::diff_rows::front;
use super::super::rows::{self, ChangeRow, NamedRows};
use super::super::{Cell, DiffOptions, Report, Section};
use super::missing::{counted, missing_ranks};
use super::names::{programs, rank_names};
use super::rows::RankChangeRow;
use crate::analysis::{DiffRow, Key, RankChange, RankSummary, Ranks, RanksDiff, RanksDiffRow};
use crate::units::{capitalized, signed};

/// The column with the change of the rank that changed most.
pub(crate) const ITS_CHANGE: &str = "Its change";

impl Report {
    /// How much more or less memory the ranks of the second job hold than those of the first, each at its own peak. Of
    /// the options, only the number of rows and the threshold are used.
    pub fn of_ranks_diff(diff: &RanksDiff, options: &DiffOptions) -> Self {
        let tables: Vec<Vec<RanksDiffRow>> = (0..diff.after.keys.len()).map(|table| diff.rows(table)).collect();
        let ranks = diff.ranks();
        let mut sections = vec![ranks_section(diff, &ranks, options.rows)];
        for (key, rows) in diff.after.keys.iter().zip(&tables) {
            let is_estimate = is_sample(diff);
            sections.push(Section { is_estimate, ..rows_section(*key, rows, options) });
        }
        sections.push(missing(diff, &ranks));
        Self {
            title: title(diff),
            answer: answer(diff, &ranks, tables.first(), options),
            notes: is_sample(diff).then(sampled).into_iter().collect(),
            sections,
            ..Self::default()
        }
    }
}

fn title(diff: &RanksDiff) -> String {
    let [before, after] = [&diff.before, &diff.after].map(programs);
    match before == after {
        true => format!("memtrace: difference of the ranks of {after}"),
        false => format!("memtrace: difference of the ranks of {before} and of {after}"),
    }
}

fn is_sample(diff: &RanksDiff) -> bool {
    diff.before.ranks.iter().chain(&diff.after.ranks).any(|rank| rank.is_sample)
}

fn answer(
    diff: &RanksDiff,
    ranks: &[RankChange<'_>],
    first: Option<&Vec<RanksDiffRow>>,
    options: &DiffOptions,
) -> Vec<String> {
    let mut lines = vec![format!("{} {}", most(ranks), worst(diff)), total(ranks)];
    lines.extend(one_sided(diff, ranks));
    lines.extend(first.map(|rows| {
        let row = rows.first();
        let by =
            row.map_or(String::new(), |row| format!("; most on rank {}, {}", row.most_rank, signed(row.most_change)));
        largest(row.map(|row| &row.row), options.threshold, &by)
    }));
    lines
}

/// A sentence on the rank that changed most, of those with a recording in both jobs. If several are equal, the first.
fn most(ranks: &[RankChange<'_>]) -> String {
    let Some(most) = ranks.iter().find(|rank| rank.is_pair()) else {
        return "No rank is on both sides.".to_owned();
    };
    let (before, after) = most.bytes();
    match most.change() {
        0 => "No rank's peak changed.".to_owned(),
        _ => format!("Rank {} changed most: {}", most.rank, change_of_two((before, ""), (after, ""))),
    }
}

fn worst(diff: &RanksDiff) -> String {
    let [before, after] = [&diff.before, &diff.after].map(Ranks::worst);
    let (Some(before), Some(after)) = (before, after) else { return "The worst rank is not known of both.".to_owned() };
    let [was, is] = [before, after].map(|rank| format!(" ({})", rank.name()));
    format!("Worst: {}", change_of_two((before.bytes(), &was), (after.bytes(), &is)))
}

fn total(ranks: &[RankChange<'_>]) -> String {
    let sum = |of: fn(&RankChange<'_>) -> u64| ranks.iter().map(of).fold(0, u64::saturating_add);
    let [was, is] = [
        ranks.iter().filter(|rank| rank.before.is_some()).count(),
        ranks.iter().filter(|rank| rank.after.is_some()).count(),
    ]
    .map(|count| format!(" ({})", counted(count)));
    format!("Together: {}", change_of_two((sum(|rank| rank.bytes().0), &was), (sum(|rank| rank.bytes().1), &is)))
}

/// The reasons why a rank is missing in one of the two jobs.
const ABSENCES: [&str; 4] = ["only before", "only after", "not read before", "not read after"];

/// Why a rank is missing in one of the two jobs; `None` if it is in both.
fn absence(diff: &RanksDiff, rank: &RankChange<'_>) -> Option<&'static str> {
    let [only_before, only_after, unread_before, unread_after] = ABSENCES;
    match (rank.before, rank.after) {
        (Some(_), None) if diff.after.has_unread(rank.rank) => Some(unread_after),
        (Some(_), None) => Some(only_before),
        (None, Some(_)) if diff.before.has_unread(rank.rank) => Some(unread_before),
        (None, Some(_)) => Some(only_after),
        _ => None,
    }
}

/// A sentence on the ranks that are missing in one of the two jobs.
fn one_sided(diff: &RanksDiff, ranks: &[RankChange<'_>]) -> Option<String> {
    let lines = ABSENCES.into_iter().filter_map(|why| {
        let of = ranks.iter().filter(|rank| absence(diff, rank) == Some(why));
        let found: Vec<&RankSummary> = of.filter_map(|rank| rank.before.or(rank.after)).collect();
        (!found.is_empty()).then(|| capitalized(&format!("{why}: {}.", rank_names(&found))))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| format!("{} The change of each is its whole peak.", lines.join(" ")))
}

fn ranks_section(diff: &RanksDiff, ranks: &[RankChange<'_>], rows: usize) -> Section {
    let columns = ["Change", "Before", "After", "Device", "Rank"];
    let mut section = Section::of_columns("diff_ranks", "Peaks of the ranks, largest change first", &columns);
    let (shown, hidden) = ranks.split_at(rows.min(ranks.len()));
    section.rows = shown.iter().map(|rank| cells(rank, absence(diff, rank))).collect();
    if !hidden.is_empty() {
        let sum = |of: fn(&RankChange<'_>) -> u64| hidden.iter().map(of).fold(0, u64::saturating_add);
        let sums = front(sum(|rank| rank.bytes().0), sum(|rank| rank.bytes().1));
        section.partial_row(sums, format!("({} more)", counted(hidden.len())));
    }
    section.named = Some(NamedRows::RankChanges(ranks.iter().map(RankChangeRow::of).collect()));
    section
}

fn cells(rank: &RankChange<'_>, absence: Option<&str>) -> Vec<Cell> {
    let device = |side: Option<&RankSummary>| Some(side?.peak.as_ref()?.device.to_string());
    let device = match (device(rank.before), device(rank.after)) {
        (Some(before), Some(after)) if before != after => Cell::Text(format!("{before} → {after}")),
        (before, after) => after.or(before).map_or(Cell::Unknown, Cell::Text),
    };
    let absence = absence.map_or(String::new(), |absence| format!(" ({absence})"));
    let (before, after) = rank.bytes();
    let mut cells = front(before, after);
    if rank.before.is_none() {
        cells[1] = Cell::Nothing;
    }
    if rank.after.is_none() {
        cells[2] = Cell::Nothing;
    }
    cells.extend([device, Cell::Text(format!("{}{absence}", rank.rank))]);
    cells
}

/// A table of rows over all ranks. The section's key is `diff_ranks_by_line` for lines, and so on.
fn rows_section(key: Key, rows: &[RanksDiffRow], options: &DiffOptions) -> Section {
    let name = format!("diff_ranks_by_{}", key.word().replace('-', "_"));
    let title = format!("Change over all ranks, each at its own peak, by {}", key.words());
    let columns = ["Change", "Before", "After", "Rank", ITS_CHANGE, key.column()];
    let mut section = Section::of_columns(name, title, &columns);
    section.about = vec!["Rank  the one whose part changed most".to_owned()];
    let of: Vec<&DiffRow> = rows.iter().map(|row| &row.row).collect();
    let shown = fill_large(&mut section, &of, options);
    for (cells, row) in section.rows.iter_mut().zip(&rows[..shown]) {
        cells.splice(3..3, [Cell::Text(row.most_rank.to_string()), Cell::Change(row.most_change)]);
    }
    if let Some(NamedRows::Changes(all)) = section.named.take() {
        let of = |(at, row): (usize, ChangeRow)| rows::RanksDiffRow::of(row, rows[..shown].get(at));
        section.named = Some(NamedRows::RanksDiff(all.into_iter().enumerate().map(of).collect()));
    }
    if rows.is_empty() {
        section.notes.push("(nothing)".to_owned());
    }
    section
}

/// What is missing on each side. A line that applies to both is printed once.
fn missing(diff: &RanksDiff, ranks: &[RankChange<'_>]) -> Section {
    let [before, after] = [&diff.before, &diff.after].map(missing_ranks);
    let mut lines = Vec::new();
    for line in &before.about {
        let which = if after.about.contains(line) { "Both" } else { "Before" };
        lines.push(format!("{which}: {line}"));
    }
    let only_after = after.about.iter().filter(|line| !before.about.contains(line));
    lines.extend(only_after.map(|line| format!("After: {line}")));
    lines.extend(other_devices(ranks));
    Section { about: lines, ..after }
}

fn other_devices(ranks: &[RankChange<'_>]) -> Option<String> {
    let device = |side: Option<&RankSummary>| Some(side?.peak.as_ref()?.device);
    let is_other = |rank: &&RankChange<'_>| {
        let devices = device(rank.before).zip(device(rank.after));
        devices.is_some_and(|(before, after)| before != after)
    };
    let found: Vec<&RankSummary> = ranks.iter().filter(is_other).filter_map(|rank| rank.after).collect();
    (!found.is_empty()).then(|| format!("Compared on another device than before: {}.", rank_names(&found)))
}
