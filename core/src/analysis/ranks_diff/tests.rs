//! Compares random jobs with a naive comparison of their events; also lines that an edit moved on all ranks.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::analysis::ranks::tests::{RandomRank, labels, random_rank, recorded};
use crate::analysis::{Key, UnreadFile};
use crate::random::programs;
use crate::recording::Recording;
use crate::snapshot::SnapshotData;
use crate::snapshot::testing::{LINE_7, LINE_9, Story};

const KEYS: [Key; 2] = [Key::Line, Key::Category];

/// Bytes of each line at the peak, by rank.
type Naive = BTreeMap<u32, BTreeMap<usize, u64>>;

fn reduced(mut data: SnapshotData, rank: Option<u32>, file: &str) -> RankSummary {
    (data.process.rank, data.process.pid) = (rank, 1);
    RankSummary::of_side(&Recording::new(&data), file, None, &KEYS)
}

/// The job. If a rank has several files, the longest one counts, which is the last one here. Another file cannot be
/// read.
fn job(files: &[RandomRank]) -> (Ranks, Naive) {
    let (mut naive, mut summaries) = (Naive::new(), Vec::new());
    for (at, file) in files.iter().enumerate() {
        let (mut data, by_line) = recorded(file);
        data.process.duration_ns = 1_000_000 * (1 + at as u64);
        let rank = file.0.unwrap_or(3);
        naive.insert(rank, by_line);
        summaries.push(reduced(data, Some(rank), &format!("{at}.memtrace")));
    }
    let torn = UnreadFile { file: "rank7.memtrace".into(), reason: "rank7.memtrace is empty".into() };
    (Ranks::of(summaries, KEYS.to_vec(), vec![torn]), naive)
}

/// Bytes of a line on a rank, before and after.
fn parts(naive: &[Naive; 2], rank: u32, line: usize) -> [u64; 2] {
    naive.each_ref().map(|side| side.get(&rank).and_then(|lines| lines.get(&line)).copied().unwrap_or(0))
}

fn change([before, after]: [u64; 2]) -> i64 {
    after as i64 - before as i64
}

/// The first rank among those with the largest change.
fn most(changes: impl Iterator<Item = (u32, i64)>) -> (u32, i64) {
    changes.fold((0, 0), |most, other| if other.1.abs() > most.1.abs() { other } else { most })
}

proptest! {
    #![proptest_config(programs(200))]
    #[test]
    fn changes_are_those_of_a_naive_comparison(
        before in prop::collection::vec(random_rank(), 0..8), after in prop::collection::vec(random_rank(), 0..8),
    ) {
        let ((before, one), (after, two)) = (job(&before), job(&after));
        let (diff, naive) = (RanksDiff { before, after }, [one, two]);
        let mut numbers: Vec<u32> = naive.iter().flat_map(|side| side.keys().copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();

        // Each rank: the largest change first, then by number.
        let peaks = |rank: u32| naive.each_ref().map(|side| side.get(&rank).map(|lines| lines.values().sum::<u64>()));
        let mut wanted: Vec<_> = numbers.iter().map(|rank| (*rank, peaks(*rank))).collect();
        wanted.sort_by_key(|(rank, peaks)| (-change(peaks.map(Option::unwrap_or_default)).abs(), *rank));
        let found = diff.ranks();
        let found: Vec<_> = found.iter().map(|rank| (rank.rank, [rank.before, rank.after].map(|side| side.map(RankSummary::bytes)))).collect();
        prop_assert_eq!(found, wanted);

        // Each line over all ranks.
        let mut wanted = Vec::new();
        for (line, label) in labels().into_iter().enumerate() {
            if naive.iter().flat_map(BTreeMap::values).all(|lines| !lines.contains_key(&line)) {
                continue;
            }
            let of = numbers.iter().map(|rank| parts(&naive, *rank, line));
            let [before, after] = of.fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
            let changes = numbers.iter().map(|rank| (*rank, change(parts(&naive, *rank, line))));
            let (rank, by) = most(changes);
            // If nothing changed, it is the first rank.
            let rank = if by == 0 { numbers[0] } else { rank };
            wanted.push((label, before, after, rank, by));
        }
        wanted.sort_by(|a, b| change([b.1, b.2]).abs().cmp(&change([a.1, a.2]).abs()).then_with(|| a.0.cmp(&b.0)));
        let rows = diff.rows(0);
        let found: Vec<_> = rows.iter().map(|row| (row.row.label.clone(), row.row.before, row.row.after, row.most_rank, row.most_change)).collect();
        prop_assert_eq!(found, wanted);

        // The sums are equal to the byte, by each key.
        let sums: [u64; 2] = naive.each_ref().map(|side| side.values().flat_map(BTreeMap::values).sum());
        for table in 0..KEYS.len() {
            let rows = diff.rows(table);
            let sum: [u64; 2] = [rows.iter().map(|row| row.row.before).sum(), rows.iter().map(|row| row.row.after).sum()];
            prop_assert_eq!(sum, sums);
            prop_assert_eq!(rows.iter().map(|row| row.row.change()).sum::<i64>(), change(sums));
        }
        prop_assert_eq!(diff.ranks().iter().map(RankChange::change).sum::<i64>(), change(sums));
    }
}

/// A rank with these bytes on lines 7 and 9, after an edit that moved both lines.
fn moved(rank: u32, [seven, nine]: [u64; 2], by: u32) -> RankSummary {
    let mut story = Story::cpu();
    story.before(1);
    story.at(1).alloc("a", seven).on(LINE_7);
    story.at(2).alloc("b", nine).on(LINE_9);
    let mut data = story.build();
    for frame in &mut data.stacks.frames {
        frame.line = frame.line.map(|line| line.saturating_add(by));
    }
    reduced(data, Some(rank), &format!("rank{rank}.memtrace"))
}

#[test]
fn a_line_that_an_edit_moved_is_one_row_over_all_ranks() {
    let side = |ranks: Vec<RankSummary>| Ranks::of(ranks, KEYS.to_vec(), Vec::new());
    let before = side(vec![moved(0, [100, 10], 0), moved(1, [100, 10], 0), moved(2, [100, 10], 0)]);
    // Rank 2 is gone, rank 3 is new.
    let after = side(vec![moved(0, [150, 10], 10), moved(1, [80, 10], 10), moved(3, [200, 10], 10)]);
    let rows = RanksDiff { before, after }.rows(0);
    let found: HashMap<&str, _> = rows
        .iter()
        .map(|row| (&*row.row.label, (row.row.before, row.row.after, row.most_rank, row.most_change)))
        .collect();
    let row =
        |end: &str| *found.iter().find(|(label, _)| label.ends_with(end)).unwrap_or_else(|| panic!("{found:?}")).1;
    assert_eq!(found.len(), 3, "{found:?}");
    // 50 more, 20 fewer, 100 gone, 200 new.
    assert_eq!(row(", before :7"), (300, 430, 3, 200));
    assert_eq!(row(", before :9"), (30, 30, 2, -10), "of ranks 2 and 3, with equal changes, the first");
    assert_eq!(row("recording)"), (3, 3, 2, -1));
}
