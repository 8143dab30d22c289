//! Timeline by line, operator or category: which keys held the memory at the highest moment of each column of time.

use std::collections::{HashMap, HashSet};

use super::labels::{BEFORE_RECORDING, Labels, line_label, operator_label};
use super::log;
use crate::attribute::Categories;
use crate::snapshot::{Block, Category, DeviceSnapshot, RecordKind, SnapshotData};

/// What a row of a [`KeyTimeline`] stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimelineKey {
    /// What the memory is for.
    #[default]
    Category,
    /// A tensor operation.
    Operator,
    /// A source line.
    Line,
}

/// One key of a [`KeyTimeline`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineRow {
    /// The category, operator or line.
    pub label: String,
    /// The most bytes that it had at once, at any time.
    pub highest: u64,
    /// Its bytes at the highest moment of each column.
    pub columns: Vec<u64>,
}

/// Live bytes over time by key. In each column the rows add up to the highest total of that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTimeline {
    /// Where it begins: nanoseconds since the recording began.
    pub from_ns: u64,
    /// Where it ends.
    pub to_ns: u64,
    /// The keys with the highest maxima, then one row for all others, if there are any.
    pub rows: Vec<TimelineRow>,
    /// The total of each column.
    pub totals: Vec<u64>,
    /// When the highest of all was reached first.
    pub highest_ns: u64,
}

/// Label of the row for all other keys.
const OTHERS: &str = "(others)";

/// The timeline of a device in `columns` columns, with `most` keys by name.
pub fn key_timeline(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    key: TimelineKey,
    columns: usize,
    most: usize,
) -> KeyTimeline {
    let mut keys = Keys::of(data, device, key);
    let numbers: Vec<usize> = device.records.iter().map(|record| keys.number(&record.block())).collect();
    let at_start = at_start(device, &mut keys);
    let (names, from_ns) = (keys.names.names, log::start_ns(device));
    let to_ns = data
        .process
        .duration_ns
        .max(device.records.last().map_or(0, |record| record.time_ns))
        .max(from_ns.saturating_add(1));
    let place = |ns: u64| {
        let part = u128::from(ns.saturating_sub(from_ns)) * columns as u128 / u128::from(to_ns - from_ns).max(1);
        (part as usize).min(columns.saturating_sub(1))
    };
    let moments = highest_moments(device, columns, place);
    let mut now = at_start;
    now.resize(names.len(), 0);
    let mut highest = now.clone();
    let mut taken = vec![Vec::new(); columns];
    let mut wanted = moments.iter().enumerate().peekable();
    let mut take = |after: usize, now: &[u64]| {
        while let Some((column, _)) = wanted.next_if(|(_, moment)| moment.0 == after) {
            taken[column] = now.to_vec();
        }
    };
    take(0, &now);
    for (after, (number, entry)) in (1..).zip(numbers.iter().zip(log::entries(device))) {
        now[*number] = now[*number].saturating_add_signed(entry.change);
        highest[*number] = highest[*number].max(now[*number]);
        take(after, &now);
    }
    let totals: Vec<u64> = moments.iter().map(|(_, total)| *total).collect();
    let first_of_highest = moments.iter().rev().max_by_key(|(_, total)| *total);
    let record = first_of_highest.and_then(|(after, _)| device.records.get(after.checked_sub(1)?));
    let highest_ns = record.map_or(from_ns, |record| record.time_ns);
    KeyTimeline { from_ns, to_ns, rows: rows(&names, &highest, &taken, &totals, most), totals, highest_ns }
}

/// For each column the number of records before its highest moment, and the total then. What is live when a column begins
/// counts as well. The numbers never fall.
fn highest_moments(device: &DeviceSnapshot, columns: usize, place: impl Fn(u64) -> usize) -> Vec<(usize, u64)> {
    let mut found: Vec<Option<(usize, u64)>> = vec![None; columns];
    let mut see = |column: usize, after: usize, total: u64| {
        if let Some(known) = found.get_mut(column).filter(|known| known.is_none_or(|(_, most)| total > most)) {
            *known = Some((after, total));
        }
    };
    let (mut at, mut now) = (0, log::allocated_at_start(device));
    see(0, 0, now);
    for (after, entry) in (1..).zip(log::entries(device)) {
        let to = place(entry.record.time_ns);
        (at + 1..=to).for_each(|column| see(column, after - 1, now));
        (at, now) = (to, entry.allocated);
        see(to, after, now);
    }
    (at + 1..columns).for_each(|column| see(column, device.records.len(), now));
    found.into_iter().map(Option::unwrap_or_default).collect()
}

fn rows(names: &[String], highest: &[u64], taken: &[Vec<u64>], totals: &[u64], most: usize) -> Vec<TimelineRow> {
    let mut order: Vec<usize> = (0..names.len()).filter(|number| highest[*number] > 0).collect();
    order.sort_by(|a, b| highest[*b].cmp(&highest[*a]).then_with(|| names[*a].cmp(&names[*b])));
    order.truncate(most);
    let row = |number: &usize| TimelineRow {
        label: names[*number].clone(),
        highest: highest[*number],
        columns: taken.iter().map(|now| now.get(*number).copied().unwrap_or(0)).collect(),
    };
    let mut rows: Vec<TimelineRow> = order.iter().map(row).collect();
    let named = |column: usize| rows.iter().map(|row| row.columns[column]).sum::<u64>();
    let others: Vec<u64> =
        totals.iter().enumerate().map(|(column, total)| total.saturating_sub(named(column))).collect();
    let highest = others.iter().copied().max().unwrap_or(0);
    if highest > 0 {
        rows.push(TimelineRow { label: OTHERS.to_owned(), highest, columns: others });
    }
    rows
}

/// Bytes of each key before the log's first record, as far as a free or the end tells.
fn at_start(device: &DeviceSnapshot, keys: &mut Keys<'_>) -> Vec<u64> {
    let mut start = Vec::new();
    let mut add = |number: usize, bytes: u64| {
        start.resize(start.len().max(number + 1), 0);
        start[number] += bytes;
    };
    let mut seen = HashSet::from([None]);
    for record in &device.records {
        if seen.insert(record.alloc_seq) && record.kind == RecordKind::Free {
            add(keys.number(&record.block()), device.weight(record.size).bytes);
        }
    }
    for block in device.live.iter().filter(|block| !seen.contains(&block.seq)) {
        add(keys.number(block), device.weight(block.size).bytes);
    }
    let known: u64 = start.iter().sum();
    let rest = log::allocated_at_start(device).saturating_sub(known);
    if rest > 0 {
        let number = keys.number_of_rest();
        start.resize(start.len().max(number + 1), 0);
        start[number] += rest;
    }
    start
}

/// Numbers of keys, each with a name.
struct Keys<'a> {
    labels: Option<Labels<'a>>,
    categories: Option<Categories>,
    names: Names,
}

#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }
}

impl<'a> Keys<'a> {
    fn of(data: &'a SnapshotData, device: &DeviceSnapshot, key: TimelineKey) -> Self {
        let (labels, categories) = match key {
            TimelineKey::Category => (None, Some(Categories::of(data, device))),
            TimelineKey::Operator => (Some(Labels::of_stacks(data, operator_label)), None),
            TimelineKey::Line => (Some(Labels::of_stacks(data, line_label)), None),
        };
        Self { labels, categories, names: Names::default() }
    }

    fn number(&mut self, block: &Block) -> usize {
        match (&mut self.labels, &self.categories) {
            (Some(labels), _) => self.names.number(labels.name(block)),
            (None, Some(categories)) => self.names.number(categories.get(block.seq).word()),
            (None, None) => 0,
        }
    }

    /// The key of what is older than the log and not known.
    fn number_of_rest(&mut self) -> usize {
        let name = if self.categories.is_some() { Category::Unknown.word() } else { BEFORE_RECORDING };
        self.names.number(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    fn story() -> Story {
        let mut story = Story::cpu();
        story.before(100);
        story.lasting(4_000);
        story.at(100).alloc("a", 1000).on(LINE_7);
        story.at(1_100).alloc("b", 5000).on(LINE_9);
        story.at(1_200).free("b");
        story.at(3_500).free("a");
        story
    }

    #[test]
    fn a_columns_rows_are_those_of_its_highest_moment() {
        let data = story().build();
        let timeline = key_timeline(&data, &data.devices[0], TimelineKey::Line, 4, 8);
        let rows: Vec<(&str, u64, &[u64])> =
            timeline.rows.iter().map(|row| (&*row.label, row.highest, &*row.columns)).collect();
        let expected: [(&str, u64, &[u64]); 3] = [
            ("src/main.rs:9 (net::pad)", 5000, &[0, 5000, 0, 0]),
            ("src/model.rs:7 (Net::forward)", 1000, &[1000, 1000, 1000, 1000]),
            (BEFORE_RECORDING, 100, &[100, 100, 100, 100]),
        ];
        assert_eq!(rows, expected);
        assert_eq!(timeline.totals, [1100, 6100, 1100, 1100]);
    }

    #[test]
    fn rows_add_up_to_the_total_with_any_number_of_keys_and_columns() {
        for overwritten in [0, 2] {
            let mut story = story();
            let data = if overwritten > 0 { story.overwritten(overwritten).build() } else { story.build() };
            for (columns, most) in [(1, 1), (7, 1), (50, 2), (3, 0)] {
                for key in [TimelineKey::Category, TimelineKey::Operator, TimelineKey::Line] {
                    let timeline = key_timeline(&data, &data.devices[0], key, columns, most);
                    for (column, total) in timeline.totals.iter().enumerate() {
                        let sum: u64 = timeline.rows.iter().map(|row| row.columns[column]).sum();
                        assert_eq!(sum, *total, "{key:?}, column {column} of {columns}");
                    }
                }
            }
        }
    }
}
