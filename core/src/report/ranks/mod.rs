//! The report of a job's ranks: outliers, all ranks, rows over all ranks, and what is missing.

mod changes;
#[cfg(test)]
mod changes_tests;
mod missing;
mod names;
pub(crate) mod rows;
#[cfg(test)]
mod tests;

pub(crate) use self::changes::ITS_CHANGE;
pub use self::missing::{counted, missing_ranks};
use self::names::programs;
pub use self::names::rank_names;
use self::rows::{LargestRow, RankRow, SpreadRow, largest};
use super::answer::percent;
use super::rows::NamedRows;
use super::tables::more;
use super::{Cell, Report, Section, sampled};
use crate::analysis::{DevicePeak, Key, Moment, RankSummary, Ranks};
use crate::units::{Bytes, with_minus};

/// The column with the bytes of a rank's largest row.
pub(crate) const LARGEST_ROW: &str = "Largest row";
/// The column with the sum over all ranks.
pub(crate) const ALL_RANKS: &str = "All ranks";

/// The key of the section of all ranks.
const RANKS: &str = "ranks";

impl Report {
    /// The report of a job's ranks, with at most `rows` rows in each table.
    pub fn of_ranks(ranks: &Ranks, rows: usize) -> Self {
        let all = ranks_section(ranks, rows);
        let spread = ranks.keys.iter().enumerate().map(|(table, key)| spread_section(ranks, table, *key, rows));
        Self {
            title: title(ranks),
            answer: answer(ranks),
            sections: [all].into_iter().chain(spread).chain([missing_ranks(ranks)]).collect(),
            ..Self::default()
        }
    }
}

fn title(ranks: &Ranks) -> String {
    format!("memtrace: memory of the ranks of {}", programs(ranks))
}

fn answer(ranks: &Ranks) -> Vec<String> {
    let (Some(worst), Some(median)) = (ranks.worst(), ranks.median()) else {
        return vec![
            if ranks.without.is_empty() { "No rank was read." } else { "No rank has this moment." }.to_owned(),
        ];
    };
    let on = |rank: &RankSummary| rank.peak.as_ref().map_or(String::new(), |peak| format!(" on {}", peak.device));
    let read = counted(ranks.ranks.len());
    let (read, peak, of) = match &ranks.moment {
        Moment::Peak => (format!("{read} read"), "peak ", "at the peak of ".to_owned()),
        moment => {
            let words = moment.words();
            let when = words.strip_prefix("live ").unwrap_or(&words);
            (format!("{read} compared by what was live {when}"), "", "on ".to_owned())
        }
    };
    let held = |rank: &RankSummary| format!("{}, {peak}{}{}.", rank.name(), Bytes(rank.bytes()), on(rank));
    let (headroom, median) = (least_headroom(ranks), held(median));
    let mut lines = vec![format!("{read}. Worst: {} {headroom} Median: {median}", held(worst))];
    lines.extend(largest(worst).map(|LargestRow { label, bytes }| {
        let about = if worst.is_sample { sampled::ABOUT } else { "" };
        let share = percent(bytes, worst.bytes());
        format!("Largest row {of}{}: {label}, {about}{} ({share}).", worst.name(), Bytes(bytes))
    }));
    lines
}

fn least_headroom(ranks: &Ranks) -> String {
    let Some((rank, gpu)) = ranks.least_headroom() else {
        return "Headroom: not known, because no recording has the capacity of a GPU.".to_owned();
    };
    let (left, capacity) = (with_minus(gpu.headroom().unwrap_or(0)), Bytes(gpu.capacity.unwrap_or(0)));
    let is_known = |rank: &&RankSummary| rank.gpus.iter().any(|gpu| gpu.capacity.is_some());
    let of = match ranks.ranks.iter().filter(is_known).count() {
        known if known == ranks.ranks.len() => String::new(),
        known => format!(" (known of {})", counted(known)),
    };
    format!("Least headroom: {}, {left} of {capacity} on {}{of}.", rank.name(), gpu.device)
}

fn ranks_section(ranks: &Ranks, rows: usize) -> Section {
    let column = ranks.keys.first().copied().unwrap_or_default().column();
    let (bytes, of) = if ranks.moment == Moment::Peak { ("Peak", "the peak") } else { ("Live", "what is live") };
    let columns = ["Rank", "Host", "Process", "Device", bytes, "Headroom", LARGEST_ROW, column];
    let mut section = Section::of_columns(RANKS, "Ranks, the worst first", &columns);
    section.about = vec![
        format!("Headroom  the GPU's capacity minus {of}. Less is free: allocators reserve"),
        "          more than is live, and CUDA and other processes need some.".to_owned(),
    ];
    let mut all: Vec<&RankSummary> = ranks.ranks.iter().collect();
    all.sort_by_key(|rank| std::cmp::Reverse(rank.weight()));
    section.rows = all.iter().take(rows).map(|rank| cells(rank)).collect();
    if all.len() > rows {
        section.partial_row(Vec::new(), format!("({} more)", counted(all.len() - rows)));
    }
    section.named = Some(NamedRows::Ranks(all.into_iter().map(RankRow::of).collect()));
    section
}

fn cells(rank: &RankSummary) -> Vec<Cell> {
    let text = |text: Option<String>| text.map_or(Cell::Unknown, Cell::Text);
    let process = rank.has_process().then_some(&rank.process);
    let peak = rank.peak.as_ref();
    let (largest, label) = match largest(rank) {
        Some(LargestRow { label, bytes }) => (Cell::Sum(bytes), label),
        None => (Cell::Nothing, "(nothing recorded)".to_owned()),
    };
    vec![
        text(Some(rank.process.rank.map_or_else(|| rank.file.clone(), |rank| rank.to_string()))),
        text(process.map(|process| process.host.clone())),
        text(process.map(|process| process.pid.to_string())),
        text(peak.map(|peak| peak.device.to_string())),
        Cell::Sum(rank.bytes()),
        peak.and_then(DevicePeak::headroom).map_or(Cell::Unknown, Cell::Signed),
        largest,
        Cell::Text(label),
    ]
}

/// `each at its own peak`, `at the peak of step 3`
fn at_words(moment: &Moment) -> String {
    if *moment == Moment::Peak { "each at its own peak".to_owned() } else { moment.words() }
}

/// A table of rows over all ranks. The section's key is made like those of the breakdowns at the peak:
/// `ranks_by_line`.
fn spread_section(ranks: &Ranks, table: usize, key: Key, rows: usize) -> Section {
    let columns = ["Imbalance", "Min", "Median", "Max", "Rank", "Without", ALL_RANKS, key.column()];
    let name = format!("ranks_by_{}", key.word().replace('-', "_"));
    let mut section =
        Section::of_columns(name, format!("Over ranks, {}, by {}", at_words(&ranks.moment), key.words()), &columns);
    section.is_estimate = ranks.ranks.iter().any(|rank| rank.is_sample);
    section.about = [
        "Imbalance  Max minus Median; the rows are sorted by it",
        "Min        a rank without the row counts as 0, for Median, too",
        "Rank       the rank with Max",
        "Without    number of ranks that lack the row",
    ]
    .map(str::to_owned)
    .to_vec();
    let all = ranks.spread(table);
    let (shown, hidden) = all.split_at(rows.min(all.len()));
    let mut named: Vec<SpreadRow> = Vec::new();
    for row in shown {
        let rank = ranks.ranks.get(row.most_at);
        let rank = rank.map(|rank| rank.process.rank.map_or_else(|| rank.file.clone(), |rank| rank.to_string()));
        let figures = [row.imbalance(), row.least, row.median, row.most].map(Cell::Sum).to_vec();
        let [rank, lacking] = [Cell::Text(rank.unwrap_or_default()), Cell::Count(row.lacking as u64)];
        let label = Cell::Text(row.label.clone());
        section.rows.push([figures, vec![rank, lacking, Cell::Sum(row.sum), label]].concat());
        named.push(SpreadRow::of(ranks, row));
    }
    if !hidden.is_empty() {
        let sum = hidden.iter().map(|row| row.sum).fold(0, u64::saturating_add);
        section.partial_row([vec![Cell::Nothing; 6], vec![Cell::Sum(sum)]].concat(), more(hidden.len()));
        named.push(SpreadRow::of_rest(more(hidden.len()), sum));
    }
    if all.is_empty() {
        section.notes.push("(nothing)".to_owned());
    }
    section.named = Some(NamedRows::Spread(named));
    section
}
