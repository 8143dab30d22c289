//! Five hand-made jobs, with the reports that follow from the definitions in docs/ranks.md, and their renderings.

use super::*;
use crate::analysis::UnreadFile;
use crate::recording::Recording;
use crate::snapshot::testing::{LINE_7, LINE_9, Story};
use crate::snapshot::{DeviceMemory, SnapshotData, StackId};

/// The summary of a rank's file `rankN.memtrace`, whose blocks have these lines and sizes.
fn rank(number: u32, story: Story, blocks: &[(StackId, u64)], world_size: Option<u32>) -> RankSummary {
    let data = recorded(number, story, blocks, world_size);
    RankSummary::of(&Recording::new(&data), &format!("rank{number}.memtrace"), None, &[Key::Line])
}

/// The same, for the comparison with another job.
pub(super) fn of_side(number: u32, story: Story, blocks: &[(StackId, u64)], world_size: Option<u32>) -> RankSummary {
    let data = recorded(number, story, blocks, world_size);
    RankSummary::of_side(&Recording::new(&data), &format!("rank{number}.memtrace"), None, &[Key::Line])
}

fn recorded(number: u32, mut story: Story, blocks: &[(StackId, u64)], world_size: Option<u32>) -> SnapshotData {
    for (at, (stack, size)) in blocks.iter().enumerate() {
        story.at(1 + at as u64).alloc(at, *size).on(*stack);
    }
    let mut data = story.build();
    (data.process.rank, data.process.pid) = (Some(number), 100 + number);
    data.process.launcher.world_size = world_size;
    data
}

pub(super) fn on_gpu(total: u64) -> Story {
    let mut story = Story::cuda(0);
    story.memory_of_device(DeviceMemory { total, ..DeviceMemory::default() });
    story
}

fn report_of(ranks: Vec<RankSummary>, unread: Vec<UnreadFile>) -> (Ranks, Report) {
    let ranks = Ranks::of(ranks, vec![Key::Line], unread);
    let report = Report::of_ranks(&ranks, 20);
    (ranks, report)
}

pub(super) fn section<'a>(report: &'a Report, key: &str) -> &'a Section {
    report.sections.iter().find(|section| section.key == key).unwrap()
}

/// Imbalance, least, median, most, lacking and sum of the row of this file.
fn spread(ranks: &Ranks, file: &str) -> [u64; 6] {
    let rows = ranks.spread(0);
    let row = rows.iter().find(|row| row.label.contains(file)).unwrap();
    [row.imbalance(), row.least, row.median, row.most, row.lacking as u64, row.sum]
}

#[test]
fn the_rank_with_a_larger_row_is_worst_and_the_launcher_says_who_is_missing() {
    let of = |number, nine| rank(number, on_gpu(8 << 10), &[(LINE_7, 4 << 10), (LINE_9, nine)], Some(4));
    let (ranks, report) = report_of(vec![of(3, 3 << 10), of(0, 1 << 10), of(1, 1 << 10)], Vec::new());
    assert_eq!(
        report.answer,
        [
            "3 ranks read. Worst: rank 3, peak 7.000 KiB on cuda:0. Least headroom: rank 3, 1.000 KiB of 8.000 KiB on \
             cuda:0. Median: rank 1, peak 5.000 KiB on cuda:0.",
            "Largest row at the peak of rank 3: src/model.rs:7 (Net::forward), 4.000 KiB (57 %).",
        ]
    );
    assert_eq!(spread(&ranks, "main.rs:9"), [2 << 10, 1 << 10, 1 << 10, 3 << 10, 0, 5 << 10]);
    assert_eq!(spread(&ranks, "model.rs:7"), [0, 4 << 10, 4 << 10, 4 << 10, 0, 12 << 10]);
    let rows = &section(&report, "ranks_by_line").rows;
    assert!(matches!(&rows[0][7], Cell::Text(label) if label.contains("main.rs:9")), "{rows:?}");
    assert_eq!(rows[0][4], Cell::Text("3".into()), "the rank with the most");
    let worst = ["3", "box", "103", "cuda:0"].map(|text| Cell::Text(text.into()));
    assert_eq!(section(&report, "ranks").rows[0][..4], worst);
    assert_eq!(section(&report, "ranks").rows[0][4..6], [Cell::Sum(7 << 10), Cell::Signed(1 << 10)]);
    let missing = ["Rank 2 has no recording here.", "The launcher started 4 ranks."];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn a_rank_without_a_row_has_0_of_it() {
    let of = |number, nine: &[u64]| {
        let nine = nine.iter().map(|size| (LINE_9, *size));
        let blocks: Vec<_> = [(LINE_7, 10)].into_iter().chain(nine).collect();
        rank(number, Story::cpu(), &blocks, None)
    };
    let (ranks, report) = report_of(vec![of(0, &[]), of(1, &[60, 40]), of(2, &[50]), of(3, &[])], Vec::new());
    assert_eq!(spread(&ranks, "main.rs:9"), [100, 0, 0, 100, 2, 150]);
    assert_eq!(spread(&ranks, "model.rs:7"), [0, 10, 10, 10, 0, 40]);
    assert_eq!(ranks.spread(0)[0].most_at, 1);
    assert!(report.answer[0].contains("Worst: rank 1, peak 110 B on cpu."), "{:?}", report.answer);
    assert!(report.answer[0].contains("Median: rank 3, peak 10 B on cpu."), "{:?}", report.answer);
    assert!(report.answer[0].contains("Headroom: not known, because no recording has the capacity of a GPU."));
    let missing = ["Ranks above 3 may be missing: the number of ranks is not recorded."];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn a_single_file_without_a_rank_is_its_own_worst_and_median() {
    let mut one = rank(0, Story::cpu(), &[(LINE_7, 10)], None);
    (one.file, one.process.rank) = ("train-1.memtrace".into(), None);
    let (ranks, report) = report_of(vec![one], Vec::new());
    assert_eq!(
        report.answer[0],
        "1 rank read. Worst: train-1.memtrace, peak 10 B on cpu. Headroom: not known, because no recording has the \
         capacity of a GPU. Median: train-1.memtrace, peak 10 B on cpu."
    );
    assert_eq!(spread(&ranks, "model.rs:7"), [0, 10, 10, 10, 0, 10]);
    let missing = ["train-1.memtrace: no rank is known; named by the file."];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn of_equal_ranks_the_first_is_the_worst_and_the_second_of_four_the_median() {
    let of = |number| rank(number, on_gpu(100), &[(LINE_7, 10), (LINE_9, 10)], Some(4));
    let (ranks, report) = report_of((0..4).map(of).collect(), Vec::new());
    assert_eq!(
        report.answer[0],
        "4 ranks read. Worst: rank 0, peak 20 B on cuda:0. Least headroom: rank 0, 80 B of 100 B on cuda:0. Median: \
         rank 1, peak 20 B on cuda:0."
    );
    let labels: Vec<String> = ranks.spread(0).into_iter().map(|row| row.label).collect();
    assert!(labels.is_sorted() && labels.len() == 2, "equal rows are sorted by label: {labels:?}");
    let missing = ["All 4 ranks that the launcher started are here."];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn a_gpu_is_worse_than_the_host_and_the_least_headroom_may_be_on_another_gpu() {
    let host = rank(0, Story::cpu(), &[(LINE_7, 1 << 30)], None);
    let mut gpus = on_gpu(1000);
    gpus.at(1).alloc("block", 100).on(LINE_7);
    let mut data = gpus.build();
    let mut second = Story::cuda(1);
    second.memory_of_device(DeviceMemory { total: 95, ..DeviceMemory::default() }).at(1).alloc("block", 90);
    data.devices.push(second.device());
    (data.process.rank, data.process.pid) = (Some(1), 7);
    let gpus = RankSummary::of(&Recording::new(&data), "one.memtrace", None, &[Key::Line]);
    let unread = UnreadFile { file: "rank_2.memtrace".into(), reason: "rank_2.memtrace is empty".into() };
    let (ranks, report) = report_of(vec![host, gpus], vec![unread]);
    assert_eq!(
        report.answer[0],
        "2 ranks read. Worst: rank 1, peak 100 B on cuda:0. Least headroom: rank 1, 5 B of 95 B on cuda:1 (known of 1 \
         rank). Median: rank 0, peak 1.000 GiB on cpu."
    );
    assert_eq!(ranks.spread(0).iter().map(|row| row.sum).sum::<u64>(), (1 << 30) + 100);
    assert_eq!(
        section(&report, "missing_ranks").about,
        [
            "Ranks above 2 may be missing: the number of ranks is not recorded.",
            "Not read: rank_2.memtrace is empty.",
            "Rank 1: used several GPUs; compared on the one with the largest peak, or on that of --device.",
        ]
    );
}

#[test]
fn a_chosen_device_is_compared_and_who_did_not_use_it_has_a_peak_of_0() {
    let mut data = on_gpu(1000).at(1).alloc("block", 100).on(LINE_7).build();
    let mut second = Story::cuda(1);
    data.devices.push(second.at(1).alloc("block", 90).on(LINE_9).device());
    data.process.rank = Some(0);
    let of = |ordinal| {
        let device = Some(crate::snapshot::Device::Cuda(ordinal));
        RankSummary::of(&Recording::new(&data), "one.memtrace", device, &[Key::Line])
    };
    let (ranks, report) = report_of(vec![of(1)], Vec::new());
    assert!(
        report.answer[0].contains("Worst: rank 0, peak 90 B on cuda:1. Headroom: not known"),
        "{:?}",
        report.answer
    );
    assert_eq!(spread(&ranks, "main.rs:9"), [0, 90, 90, 90, 0, 90]);
    let (ranks, report) = report_of(vec![of(7)], Vec::new());
    assert!(report.answer[0].contains("Worst: rank 0, peak 0 B."), "{:?}", report.answer);
    assert!(ranks.spread(0).is_empty() && ranks.least_headroom().is_none());
    let nothing = "Rank 0: nothing was recorded on the device; counts as 0.";
    assert!(section(&report, "missing_ranks").about.contains(&nothing.to_owned()), "{report:?}");
}

/// A rank with this many blocks of line 7 in each of its steps, and one of line 9 that stays.
fn steps(number: u32, stays: u64, steps: &[u64]) -> RankSummary {
    let mut story = on_gpu(1000);
    // This is known only at the peak, and the peak is in the step of only some ranks.
    story.below_threshold(7).at(1).alloc("stays", stays).on(LINE_9);
    for (at, size) in steps.iter().enumerate() {
        let (name, from) = (format!("step {at}"), 10 + 10 * at as u64);
        story.at(from).enter(&name).at(from + 1).alloc(at, *size).on(LINE_7);
        story.at(from + 2).free(at).at(from + 3).leave(&name);
    }
    let mut data = story.build();
    (data.process.rank, data.process.pid) = (Some(number), 100 + number);
    RankSummary::at(&Moment::Step(1), &Recording::new(&data), &format!("rank{number}.memtrace"), None, &[Key::Line])
}

#[test]
fn ranks_are_compared_at_a_step_and_those_that_lack_it_count_for_nothing() {
    let all = vec![steps(0, 10, &[500, 30]), steps(1, 20, &[0, 50]), steps(2, 990, &[5])];
    let ranks = Ranks { moment: Moment::Step(1), ..Ranks::of(all, vec![Key::Line], Vec::new()) };
    let report = Report::of_ranks(&ranks, 20);
    assert_eq!(
        report.answer,
        [
            "2 ranks compared by what was live at the peak of step 1. Worst: rank 1, 70 B on cuda:0. Least headroom: \
             rank 1, 930 B of 1000 B on cuda:0. Median: rank 0, 40 B on cuda:0.",
            "Largest row on rank 1: src/model.rs:7 (Net::forward), 50 B (71 %).",
        ]
    );
    assert_eq!(spread(&ranks, "model.rs:7"), [20, 30, 30, 50, 0, 80]);
    assert_eq!(spread(&ranks, "main.rs:9"), [10, 10, 10, 20, 0, 30]);
    assert_eq!(section(&report, "ranks_by_line").title, "Over ranks, at the peak of step 1, by line");
    let missing = [
        "Ranks above 2 may be missing: the number of ranks is not recorded.",
        "Rank 2: cannot show that moment: no scope has the number 1; there are `step 0`.",
    ];
    assert_eq!(section(&report, "missing_ranks").about, missing);
}

#[test]
fn the_tables_fit_a_terminal_and_what_is_folded_keeps_its_sum() {
    let of = |number, nine| rank(number, on_gpu(8 << 20), &[(LINE_7, 4 << 20), (LINE_9, nine)], None);
    let ranks = Ranks::of(vec![of(0, 1 << 20), of(1, 3 << 20)], vec![Key::Line], Vec::new());
    let report = Report::of_ranks(&ranks, 1);
    let shown = |width| crate::export::Text { width, ..Default::default() }.show(&report);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest(&shown(80)) <= 80 && !shown(80).contains(ALL_RANKS), "{}", shown(80));
    assert!(shown(120).contains("8.000 MiB  (1 more rows)") && shown(120).contains("(1 rank more)"), "{}", shown(120));
}
