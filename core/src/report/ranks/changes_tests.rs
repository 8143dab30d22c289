//! Two hand-made jobs, with the report that follows from the definitions in docs/ranks.md.

use super::tests::{of_side, on_gpu, section};
use crate::analysis::{Key, RankSummary, Ranks, RanksDiff, UnreadFile};
use crate::report::{Cell, DiffOptions, Report};
use crate::snapshot::testing::{LINE_7, LINE_9, Story};

/// Rank `number` of 4, with 4 KiB of line 7 and `nine` KiB of line 9.
fn rank(number: u32, nine: u64) -> RankSummary {
    of_side(number, on_gpu(1 << 20), &[(LINE_7, 4 << 10), (LINE_9, nine << 10)], Some(4))
}

fn job(ranks: Vec<RankSummary>) -> Ranks {
    Ranks::of(ranks, vec![Key::Line], Vec::new())
}

fn report_of(before: Ranks, after: Ranks, rows: usize, threshold: u64) -> Report {
    Report::of_ranks_diff(&RanksDiff { before, after }, &DiffOptions { rows, threshold, ..DiffOptions::default() })
}

/// Rank 0 has 1 KiB more, rank 1 is unchanged, rank 2 is gone, rank 3 is new.
fn changed(rows: usize) -> Report {
    let before = job(vec![rank(0, 1), rank(1, 1), rank(2, 1)]);
    report_of(before, job(vec![rank(0, 2), rank(1, 1), rank(3, 8)]), rows, 1)
}

#[test]
fn the_answer_names_the_rank_that_changed_most_and_the_worst_ones() {
    let report = changed(20);
    assert_eq!(report.title, "memtrace: difference of the ranks of net");
    assert_eq!(
        report.answer[..3],
        [
            "Rank 0 changed most: 5.000 KiB before, 6.000 KiB after: +1.000 KiB (+20.0 %). Worst: 5.000 KiB before \
             (rank 0), 12.00 KiB after (rank 3): +7.000 KiB (+140.0 %).",
            "Together: 15.00 KiB before (3 ranks), 23.00 KiB after (3 ranks): +8.000 KiB (+53.3 %).",
            "Only before: rank 2. Only after: rank 3. The change of each is its whole peak.",
        ]
    );
    let largest = &report.answer[3];
    assert!(largest.starts_with("Largest change: ") && largest.contains("main.rs:9"), "{largest}");
    // The part of line 9 on rank 3.
    assert!(largest.ends_with(", +8.000 KiB (grown); most on rank 3, +8.000 KiB."), "{largest}");
    let missing = [
        "Before: Rank 3 has no recording here.",
        "Both: The launcher started 4 ranks.",
        "After: Rank 2 has no recording here.",
    ];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn each_rank_has_a_row_and_each_row_the_rank_that_changed_most() {
    let report = changed(20);
    let kib = |kib: i64| kib << 10;
    let rank = |change, before: Option<u64>, after: Option<u64>, label: &str| {
        let of = |side: Option<u64>| side.map_or(Cell::Nothing, |side| Cell::Sum(side << 10));
        let (device, label) = (Cell::Text("cuda:0".into()), Cell::Text(label.into()));
        vec![Cell::Change(kib(change)), of(before), of(after), device, label]
    };
    let ranks = [
        rank(12, None, Some(12), "3 (only after)"),
        rank(-5, Some(5), None, "2 (only before)"),
        rank(1, Some(5), Some(6), "0"),
        rank(0, Some(5), Some(5), "1"),
    ];
    assert_eq!(section(&report, "diff_ranks").rows, ranks);
    let rows = &section(&report, "diff_ranks_by_line").rows;
    let three = Cell::Text("3".into());
    let nine = [Cell::Change(kib(8)), Cell::Sum(3 << 10), Cell::Sum(11 << 10), three, Cell::Change(kib(8))];
    assert_eq!(rows[0][..5], nine);
    // Line 7 has 12 KiB on either side: it is among the rows that did not change.
    let rest = [Cell::Change(0), Cell::Sum(12 << 10), Cell::Sum(12 << 10), Cell::Nothing, Cell::Nothing];
    assert_eq!((&rows[1][..5], rows.len()), (&rest[..], 2));
}

#[test]
fn what_is_folded_keeps_its_sum_and_the_tables_fit_a_terminal() {
    let report = changed(1);
    let last = |key| section(&report, key).rows.last().unwrap()[..3].to_vec();
    // Ranks 2, 0 and 1.
    let ranks = vec![Cell::Change(-4 << 10), Cell::Sum(15 << 10), Cell::Sum(11 << 10)];
    assert_eq!((last("diff_ranks"), section(&report, "diff_ranks").rows.len()), (ranks, 2));
    let shown = |width| crate::export::Text { width, ..Default::default() }.show(&report);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest(&shown(80)) <= 80 && !shown(80).contains(super::ITS_CHANGE), "{}", shown(80));
    assert!(widest(&shown(120)) <= 120 && shown(120).contains(super::ITS_CHANGE), "{}", shown(120));
    assert!(shown(120).contains("(3 ranks more)") && shown(120).contains("(1 more rows)"), "{}", shown(120));
}

#[test]
fn equal_jobs_have_no_change_and_jobs_without_a_common_rank_no_pair() {
    let of = |numbers: &[u32]| job(numbers.iter().map(|number| rank(*number, 1)).collect());
    let same = report_of(of(&[0, 1]), of(&[0, 1]), 20, 64 << 10);
    let answer = [
        "No rank's peak changed. Worst: 5.000 KiB before (rank 0), 5.000 KiB after (rank 0): 0 B.",
        "Together: 10.00 KiB before (2 ranks), 10.00 KiB after (2 ranks): 0 B.",
        "No row changed by 64.00 KiB or more.",
    ];
    assert_eq!(same.answer, answer);
    let apart = report_of(of(&[0]), of(&[1]), 20, 1).answer;
    assert!(apart[0].starts_with("No rank is on both sides. Worst: 5.000 KiB before (rank 0)"), "{apart:?}");
    let unread = UnreadFile { file: "rank0.memtrace".into(), reason: "rank0.memtrace is empty".into() };
    let none = Ranks::of(Vec::new(), vec![Key::Line], vec![unread]);
    let report = report_of(none.clone(), of(&[0, 1]), 20, 1);
    assert_eq!(report.answer[0], "No rank is on both sides. The worst rank is not known of both.");
    let absent = "Only after: rank 1. Not read before: rank 0. The change of each is its whole peak.";
    assert_eq!(report.answer[2], absent);
    let label = |report: &Report| section(report, "diff_ranks").rows[0][4].clone();
    assert_eq!(label(&report), Cell::Text("0 (not read before)".into()));
    let gone = report_of(of(&[0, 1]), none, 20, 1);
    assert_eq!(label(&gone), Cell::Text("0 (not read after)".into()));
    assert!(section(&report, "missing_ranks").about.contains(&"Before: Not read: rank0.memtrace is empty.".to_owned()));
}

#[test]
fn a_rank_on_another_device_is_named() {
    let on = |story: Story| job(vec![of_side(0, story, &[(LINE_7, 10)], None)]);
    let report = report_of(on(Story::cuda(0)), on(Story::cuda(1)), 20, 1);
    assert_eq!(section(&report, "diff_ranks").rows[0][3], Cell::Text("cuda:0 → cuda:1".into()));
    let about = &section(&report, "missing_ranks").about;
    assert!(about.contains(&"Compared on another device than before: rank 0.".to_owned()), "{about:?}");
    let same = report_of(on(Story::cuda(0)), on(Story::cuda(0)), 20, 1);
    assert!(!section(&same, "missing_ranks").about.iter().any(|line| line.contains("another device")));
}

#[test]
fn sums_beyond_64_bits_are_not_wrapped() {
    let large = |number| of_side(number, Story::cpu(), &[(LINE_7, u64::MAX / 2)], None);
    let report = report_of(job(Vec::new()), job((0..3).map(large).collect()), 20, 1);
    assert_eq!(section(&report, "diff_ranks_by_line").rows[0][2], Cell::Sum(u64::MAX));
}
