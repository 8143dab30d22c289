//! Timeline by line, operator or category: which keys held the memory at the highest moment of each column of time.

use std::collections::HashSet;

use super::breakdown::at;
use super::columns::Columns;
use super::labels::{BEFORE_RECORDING, Labels};
use super::log;
use super::rows::Key;
use crate::hashed::HashMap;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, DeviceSnapshot, RecordKind};

/// One key of a [`KeyTimeline`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineRow {
    /// The category, operator or line.
    pub label: String,
    /// The most bytes that the key had at any time.
    pub highest: u64,
    /// The key's bytes at the highest moment of each column.
    pub columns: Vec<u64>,
}

/// Live bytes over time by key. In each column the rows add up to the highest total of that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTimeline {
    /// Where the timeline begins, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Where the timeline ends.
    pub to_ns: u64,
    /// The keys with the highest maxima, then one row for all others, if there are others.
    pub rows: Vec<TimelineRow>,
    /// The total of each column.
    pub totals: Vec<u64>,
    /// When the highest total was first reached.
    pub highest_ns: u64,
}

const OTHERS: &str = "(others)";

/// The timeline of a device in `columns` columns, with at most `most` named keys. With [`Key::Category`], the labels
/// are the words of [`Category`]: a block that tables label `unknown (gradient or graph)` is `unknown` here.
pub fn key_timeline(device: &DeviceView<'_>, key: Key, columns: usize, most: usize) -> KeyTimeline {
    let mut labels = Labels::by(device, key, device.data().process.duration_ns);
    let mut number = |block: &Block| match key {
        Key::Category => labels.number_of(device.categories().get(block.seq).word()),
        _ => labels.number(block),
    };
    let numbers: Vec<usize> = numbers(device, &mut number).collect();
    let (mut now, rest) = at_start(device, &mut number);
    if rest > 0 {
        let unknown = if key == Key::Category { Category::Unknown.word() } else { BEFORE_RECORDING };
        add(&mut now, labels.number_of(unknown), rest);
    }
    let names: Vec<&str> = labels.names().collect();
    now.resize(names.len(), 0);
    let time = Columns::of(device, columns);
    let moments = highest_moments(device, time);
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
    let highest_ns = record.map_or(time.from_ns, |record| record.time_ns);
    let rows = rows(&names, &highest, &taken, &totals, most);
    KeyTimeline { from_ns: time.from_ns, to_ns: time.to_ns, rows, totals, highest_ns }
}

/// For each column, the number of records up to its highest moment, and the total then. The live bytes at a column's
/// beginning count as well. The numbers of records never decrease from column to column.
fn highest_moments(device: &DeviceView<'_>, time: Columns) -> Vec<(usize, u64)> {
    let mut found: Vec<Option<(usize, u64)>> = vec![None; time.count];
    time.totals(device, |column, after, total| {
        if found[column].is_none_or(|(_, most)| total > most) {
            found[column] = Some((after, total));
        }
    });
    found.into_iter().map(Option::unwrap_or_default).collect()
}

fn rows(names: &[&str], highest: &[u64], taken: &[Vec<u64>], totals: &[u64], most: usize) -> Vec<TimelineRow> {
    let mut order: Vec<usize> = (0..names.len()).filter(|number| highest[*number] > 0).collect();
    order.sort_by(|a, b| highest[*b].cmp(&highest[*a]).then_with(|| names[*a].cmp(names[*b])));
    order.truncate(most);
    let row = |number: &usize| TimelineRow {
        label: names[*number].to_owned(),
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

/// The row number of each record's block, as `number` returns it. A free gets the number of its alloc if the log has
/// this alloc, because a free lacks some data of the block, such as the thread.
pub(super) fn numbers(device: &DeviceSnapshot, mut number: impl FnMut(&Block) -> usize) -> impl Iterator<Item = usize> {
    let mut known: HashMap<u64, usize> = HashMap::default();
    device.records.iter().map(move |record| {
        if record.kind == RecordKind::Free {
            return known.remove(&record.raw_seq()).unwrap_or_else(|| number(&record.block()));
        }
        let number = number(&record.block());
        known.insert(record.raw_seq(), number);
        number
    })
}

/// Bytes of each key before the log's first record, as far as frees or the blocks at the end show them, and the
/// remaining bytes.
pub(super) fn at_start(device: &DeviceSnapshot, mut number: impl FnMut(&Block) -> usize) -> (Vec<u64>, u64) {
    let (mut start, mut seen) = (Vec::new(), HashSet::from([None]));
    for record in &device.records {
        if seen.insert(record.alloc_seq) && record.kind == RecordKind::Free {
            add(&mut start, number(&record.block()), device.weight(record.size).bytes);
        }
    }
    for block in device.live.iter().filter(|block| !seen.contains(&block.seq)) {
        add(&mut start, number(block), device.weight(block.size).bytes);
    }
    let known: u64 = start.iter().sum();
    (start, log::allocated_at_start(device).saturating_sub(known))
}

pub(super) fn add(sums: &mut Vec<u64>, number: usize, bytes: u64) {
    let sum = at(sums, number);
    *sum = sum.saturating_add(bytes);
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
        let timeline = key_timeline(&DeviceView::of(&data, &data.devices[0]), Key::Line, 4, 8);
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
                for key in [Key::Category, Key::Operator, Key::Line] {
                    let timeline = key_timeline(&DeviceView::of(&data, &data.devices[0]), key, columns, most);
                    for (column, total) in timeline.totals.iter().enumerate() {
                        let sum: u64 = timeline.rows.iter().map(|row| row.columns[column]).sum();
                        assert_eq!(sum, *total, "{key:?}, column {column} of {columns}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_that_another_thread_frees_is_taken_from_the_thread_that_allocated_it() {
        let mut story = Story::cpu();
        story.lasting(3_000);
        story.at(100).thread(1).alloc("a", 1000).thread(2).alloc("b", 300);
        story.at(1_100).thread(2).free("a").at(2_100).thread(1).alloc("c", 50);
        let data = story.build();
        let timeline = key_timeline(&DeviceView::of(&data, &data.devices[0]), Key::Thread, 3, 8);
        let columns: Vec<&[u64]> = timeline.rows.iter().map(|row| &*row.columns).collect();
        assert_eq!(columns, [&[1000, 1000, 50][..], &[300, 300, 300]]);
        assert_eq!(timeline.totals, [1300, 1300, 350]);
    }
}
