//! Compares ranks with a naive computation over random recordings, and tests which recordings belong to the same job.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::analysis::BEFORE_RECORDING;
use crate::random::programs;
use crate::recording::Recording;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, WORKER};
use crate::snapshot::{Launcher, Process, SnapshotData};

pub(in crate::analysis) const LINES: [crate::snapshot::StackId; 3] = [LINE_7, LINE_9, WORKER];

/// An alloc of a line, or a free of one of the live blocks.
#[derive(Clone, Debug)]
pub(in crate::analysis) enum RankOp {
    Alloc { line: usize, size: u64 },
    Free { nth: usize },
}

/// A rank's number, the GPU's capacity, bytes from before the recording, and the rank's operations.
pub(in crate::analysis) type RandomRank = (Option<u32>, Option<u64>, u64, Vec<RankOp>);

fn op() -> impl Strategy<Value = RankOp> {
    prop_oneof![
        3 => (0..LINES.len(), 1..6u64).prop_map(|(line, size)| RankOp::Alloc { line, size }),
        2 => any::<usize>().prop_map(|nth| RankOp::Free { nth }),
    ]
}

pub(in crate::analysis) fn random_rank() -> impl Strategy<Value = RandomRank> {
    let number = prop::option::weighted(0.9, 0..9u32);
    (number, prop::option::of(1..40u64), 0..3u64, prop::collection::vec(op(), 0..20))
}

/// The recording, and the bytes by line at its peak.
pub(in crate::analysis) fn recorded(rank: &RandomRank) -> (SnapshotData, BTreeMap<usize, u64>) {
    let (number, capacity, before, ops) = rank;
    let mut story = if capacity.is_some() { Story::cuda(0) } else { Story::cpu() };
    if let Some(total) = capacity {
        story.memory_of_device(crate::snapshot::DeviceMemory { total: *total, ..Default::default() });
    }
    story.before(*before);
    let mut live: Vec<(usize, usize, u64)> = Vec::new();
    let mut highest: Vec<(usize, usize, u64)> = Vec::new();
    let sum = |blocks: &[(usize, usize, u64)]| blocks.iter().map(|(.., size)| size).sum::<u64>();
    for (at, op) in ops.iter().enumerate() {
        story.at(1 + at as u64);
        match op {
            RankOp::Alloc { line, size } => {
                story.alloc(at, *size).on(LINES[*line]);
                live.push((at, *line, *size));
            }
            RankOp::Free { nth } if !live.is_empty() => {
                let (label, ..) = live.remove(nth % live.len());
                story.free(label);
            }
            RankOp::Free { .. } => {}
        }
        if sum(&live) > sum(&highest) {
            highest.clone_from(&live);
        }
    }
    let mut by_line = BTreeMap::new();
    highest.iter().for_each(|(_, line, size)| *by_line.entry(*line).or_default() += size);
    if *before > 0 {
        by_line.insert(LINES.len(), *before);
    }
    let mut data = story.build();
    data.process.rank = *number;
    (data, by_line)
}

/// A recording with these operations in its steps, and the bytes by line at the highest moment of the second step.
fn in_steps(steps: &[Vec<RankOp>]) -> (SnapshotData, BTreeMap<usize, u64>) {
    let mut story = Story::cuda(0);
    let (mut time, mut count) = (0, 0);
    let mut live: Vec<(usize, usize, u64)> = Vec::new();
    let mut states = Vec::new();
    for (number, ops) in steps.iter().enumerate() {
        time += 1;
        story.at(time).enter(&format!("step {number}"));
        states.extend((number == 1).then(|| live.clone()));
        for op in ops {
            (time, count) = (time + 1, count + 1);
            story.at(time);
            match op {
                RankOp::Alloc { line, size } => {
                    story.alloc(count, *size).on(LINES[*line]);
                    live.push((count, *line, *size));
                }
                RankOp::Free { nth } if !live.is_empty() => _ = story.free(live.remove(nth % live.len()).0),
                RankOp::Free { .. } => {}
            }
            states.extend((number == 1).then(|| live.clone()));
        }
        time += 1;
        story.at(time).leave(&format!("step {number}"));
    }
    let sum = |blocks: &Vec<(usize, usize, u64)>| blocks.iter().map(|(.., size)| size).sum::<u64>();
    // The first of equal moments.
    let highest = states.into_iter().rev().max_by_key(sum).unwrap_or_default();
    let mut by_line = BTreeMap::new();
    highest.iter().for_each(|(_, line, size)| *by_line.entry(*line).or_default() += size);
    (story.build(), by_line)
}

/// The label of each line, from a recording of one block. The last label is that of memory from before the recording.
pub(in crate::analysis) fn labels() -> Vec<String> {
    let label = |stack| {
        let mut story = Story::cpu();
        let data = story.alloc("block", 1).on(stack).build();
        Recording::new(&data).devices()[0].by(Key::Line).rows[0].label.clone()
    };
    LINES.into_iter().map(label).chain([BEFORE_RECORDING.to_owned()]).collect()
}

/// The middle value, or the lower one of the middle two.
fn middle<T: Ord + Clone>(mut values: Vec<T>) -> T {
    values.sort();
    values[(values.len() - 1) / 2].clone()
}

proptest! {
    #![proptest_config(programs(200))]
    #[test]
    fn ranks_and_rows_are_those_of_a_naive_computation(all in prop::collection::vec(random_rank(), 1..9)) {
        let mut seen = std::collections::HashSet::new();
        let all: Vec<RandomRank> = all.into_iter().filter(|(number, ..)| number.is_none() || seen.insert(*number)).collect();
        let naive: Vec<_> = all.iter().map(recorded).collect();
        let reduced = |(at, (data, _)): (usize, &(SnapshotData, _))| {
            let mut data = data.clone();
            data.process.pid = 1 + at as u32;
            RankSummary::of(&Recording::new(&data), &format!("file{at}.memtrace"), None, &[Key::Line])
        };
        let ranks = Ranks::of(naive.iter().enumerate().map(reduced).collect(), vec![Key::Line], Vec::new());
        // The order: by number, then by file.
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|at| (all[*at].0.is_none(), all[*at].0, *at));
        let peak = |at: &usize| naive[*at].1.values().sum::<u64>();
        let on_gpu = |at: &usize| all[*at].1.is_some() && peak(at) > 0;
        prop_assert_eq!(ranks.ranks.iter().map(RankSummary::bytes).collect::<Vec<_>>(), order.iter().map(peak).collect::<Vec<_>>());

        let weight = |place: usize| (on_gpu(&order[place]), peak(&order[place]));
        let most = (0..order.len()).map(weight).max().unwrap();
        let worst = (0..order.len()).find(|place| weight(*place) == most).unwrap();
        prop_assert_eq!(&ranks.worst().unwrap().file, &ranks.ranks[worst].file);
        let (_, _, median) = middle((0..order.len()).map(|place| (weight(place), place, place)).collect());
        prop_assert_eq!(&ranks.median().unwrap().file, &ranks.ranks[median].file);
        let headroom = |place: &usize| {
            let at = &order[*place];
            all[*at].1.filter(|_| on_gpu(at)).map(|capacity| (capacity as i64 - peak(at) as i64, *place))
        };
        let least = (0..order.len()).filter_map(|place| headroom(&place)).min();
        let found = ranks.least_headroom().map(|(rank, gpu)| (gpu.headroom().unwrap(), rank.file.clone()));
        prop_assert_eq!(found, least.map(|(left, place)| (left, ranks.ranks[place].file.clone())));

        let mut wanted = Vec::new();
        for (line, label) in labels().into_iter().enumerate() {
            let held: Vec<Option<u64>> = order.iter().map(|at| naive[*at].1.get(&line).copied()).collect();
            if held.iter().all(Option::is_none) {
                continue;
            }
            let sizes: Vec<u64> = held.iter().map(|bytes| bytes.unwrap_or(0)).collect();
            let most = *sizes.iter().max().unwrap();
            wanted.push(SpreadRow {
                label,
                least: *sizes.iter().min().unwrap(),
                median: middle(sizes.clone()),
                most,
                most_at: sizes.iter().position(|size| *size == most).unwrap(),
                lacking: held.iter().filter(|bytes| bytes.is_none()).count(),
                sum: sizes.iter().sum(),
            });
        }
        wanted.sort_by(|a, b| {
            let of = |row: &SpreadRow| (row.most - row.median, row.most);
            of(b).cmp(&of(a)).then_with(|| a.label.cmp(&b.label))
        });
        prop_assert_eq!(ranks.spread(0), wanted);
        let sum: u64 = ranks.spread(0).iter().map(|row| row.sum).sum();
        prop_assert_eq!(sum, order.iter().map(peak).sum::<u64>(), "to the byte");
    }

    /// Each step has the operations of a rank. The answer is the live memory by line at the second step's highest
    /// moment.
    #[test]
    fn at_a_step_ranks_are_those_of_a_naive_computation(
        all in prop::collection::vec(prop::collection::vec(prop::collection::vec(op(), 0..8), 0..4), 1..6),
    ) {
        let naive: Vec<_> = all.iter().map(|steps| in_steps(steps)).collect();
        let reduced = |(at, (data, _)): (usize, &(SnapshotData, _))| {
            let mut data = data.clone();
            data.process.rank = Some(at as u32);
            RankSummary::at(&Moment::Step(1), &Recording::new(&data), "file", None, &[Key::Line])
        };
        let ranks = Ranks::of(naive.iter().enumerate().map(reduced).collect(), vec![Key::Line], Vec::new());
        // If nothing was ever live, there is no device, and so no moment that could be unknown.
        let has_step = |at: &usize| all[*at].len() > 1 || naive[*at].0.devices[0].peak.bytes == 0;
        let wanted: Vec<usize> = (0..all.len()).filter(has_step).collect();
        let found: Vec<usize> = ranks.ranks.iter().map(|rank| rank.process.rank.unwrap() as usize).collect();
        prop_assert_eq!(found, &wanted[..]);
        prop_assert!(ranks.without.iter().all(|rank| rank.moment_unknown.is_some()));
        let bytes = |at: &usize| naive[*at].1.values().sum::<u64>();
        prop_assert_eq!(ranks.ranks.iter().map(RankSummary::bytes).collect::<Vec<_>>(), wanted.iter().map(bytes).collect::<Vec<_>>());
        for (line, label) in labels().into_iter().enumerate() {
            let sum: u64 = wanted.iter().filter_map(|at| naive[*at].1.get(&line)).sum();
            let row = ranks.spread(0).into_iter().find(|row| row.label == label);
            prop_assert_eq!(row.map_or(0, |row| row.sum), sum, "{}", label);
        }
    }

    #[test]
    fn missing_are_the_numbers_below_the_end_that_nobody_has(
        present in prop::collection::btree_set(0..12u32, 0..8), world_size in prop::option::of(1..14u32),
    ) {
        let rank = |number: &u32| summary("net", *number, 0, |process| process.launcher.world_size = world_size);
        let ranks = Ranks::of(present.iter().map(rank).collect(), Vec::new(), Vec::new());
        let end = present.last().map_or(0, |last| last + 1).max(world_size.filter(|_| !present.is_empty()).unwrap_or(0));
        let wanted: Vec<u32> = (0..end).filter(|number| !present.contains(number)).collect();
        prop_assert_eq!(ranks.missing().into_iter().flatten().collect::<Vec<u32>>(), wanted);
    }
}

const SECOND: u64 = 1_000_000;

/// A rank whose process began after `began_s` seconds and ran for 10.
fn summary(program: &str, rank: u32, began_s: u64, change: impl FnOnce(&mut Process)) -> RankSummary {
    let mut process = Process {
        program: program.into(),
        host: "one".into(),
        pid: rank.wrapping_add(100),
        rank: Some(rank),
        started_unix_us: 1_790_000_000 * SECOND + began_s * SECOND,
        duration_ns: 10_000_000_000,
        ..Process::default()
    };
    change(&mut process);
    RankSummary { file: format!("{program}-{rank}-{began_s}"), process, ..RankSummary::default() }
}

fn ranks_at(program: &str, ranks: std::ops::Range<u32>, began_s: u64) -> Vec<RankSummary> {
    ranks.map(|rank| summary(program, rank, began_s, |_| {})).collect()
}

#[test]
fn the_largest_number_has_no_rank_above_it() {
    let last = summary("net", u32::MAX, 0, |process| process.launcher.world_size = Some(u32::MAX));
    let ranks = Ranks::of(vec![last], Vec::new(), Vec::new());
    assert_eq!(ranks.missing(), [0..=u32::MAX - 1]);
}

/// The name of the case, the recordings, and the expected jobs.
type JobCase<'a> = (&'a str, Vec<RankSummary>, &'a [&'a [usize]]);

#[test]
fn recordings_are_of_one_job_if_nothing_speaks_against_it() {
    let no_rank = |began_s, pid: u32| summary("net", 0, began_s, |process| (process.rank, process.pid) = (None, pid));
    let of_job = |job: &str, ranks, began_s| -> Vec<RankSummary> {
        let mut all = ranks_at("net", ranks, began_s);
        all.iter_mut().for_each(|one| one.process.launcher.job = Some(job.into()));
        all
    };
    let snapshot = |program: &str, name: &str| {
        let process = Process { program: program.into(), ..Process::default() };
        RankSummary { file: name.into(), process, ..RankSummary::default() }
    };
    let mut twice = ranks_at("net", 0..1, 0);
    twice.extend(twice.clone());
    let mut elsewhere = no_rank(12, 2);
    elsewhere.process.host = "two".into();
    let mut sizes = ranks_at("net", 0..2, 0);
    sizes[0].process.launcher = Launcher { world_size: Some(2), job: None };
    sizes[1].process.launcher = Launcher { world_size: Some(3), job: None };
    let became = |pid| {
        let mut all = ranks_at("net", 0..2, 0);
        all[0].is_cut_off = true;
        all.push(summary("net", 0, 20, |process| process.pid = pid));
        all
    };
    let cases: [JobCase<'_>; 15] = [
        ("a job", ranks_at("net", 0..3, 0), &[&[0, 1, 2]]),
        ("slow to begin", [ranks_at("net", 0..1, 0), ranks_at("net", 1..2, 60)].concat(), &[&[0, 1]]),
        ("too far apart", [ranks_at("net", 0..1, 0), ranks_at("net", 1..2, 61)].concat(), &[&[0], &[1]]),
        ("two programs", [ranks_at("net", 0..2, 0), ranks_at("other", 0..2, 0)].concat(), &[&[0, 1], &[2, 3]]),
        (
            "again, in another order",
            [ranks_at("net", 0..2, 30), ranks_at("net", 0..2, 0)].concat(),
            &[&[2, 3], &[0, 1]],
        ),
        ("a process that became another program", became(100), &[&[0, 1, 2]]),
        ("another process after one that was killed", became(300), &[&[0, 1], &[2]]),
        ("a copied file", twice, &[&[0, 1]]),
        ("two ids", [of_job("a", 0..1, 0), of_job("b", 1..2, 0)].concat(), &[&[0], &[1]]),
        (
            "one id not known",
            [of_job("a", 0..1, 0), ranks_at("net", 1..2, 0), of_job("a", 2..3, 0)].concat(),
            &[&[0, 1, 2]],
        ),
        ("two numbers of ranks", sizes, &[&[0], &[1]]),
        ("no ranks, one after the other", vec![no_rank(0, 1), no_rank(11, 2)], &[&[0], &[1]]),
        ("no ranks, together", vec![no_rank(0, 1), no_rank(9, 2)], &[&[0, 1]]),
        ("clocks of two hosts", vec![no_rank(0, 1), elsewhere], &[&[0, 1]]),
        ("with PyTorch's", [ranks_at("net", 0..1, 0), vec![snapshot("train.py", "rank1.pickle")]].concat(), &[&[0, 1]]),
    ];
    for (name, all, wanted) in cases {
        assert_eq!(jobs(&all), wanted, "{name}");
    }
    let two = [
        ranks_at("net", 0..1, 0),
        ranks_at("other", 0..1, 0),
        vec![snapshot("train.py", "a"), snapshot("train.py", "b")],
    ];
    assert_eq!(jobs(&two.concat()), [vec![0], vec![1], vec![2, 3]], "whose snapshots these are is not known");
    assert_eq!(jobs(&[snapshot("train.py", "a"), snapshot("eval.py", "b")]), [[0], [1]]);
}

#[test]
fn a_launcher_beside_ranks_is_no_second_job() {
    let alone = |program: &str, began_s, seconds: u64| {
        summary(program, 0, began_s, |process| {
            (process.rank, process.pid, process.duration_ns) = (None, 9_000, seconds * 1_000_000_000);
        })
    };
    let net = || ranks_at("net", 0..2, 10);
    let mut elsewhere = alone("agent", 0, 8);
    elsewhere.process.host = "two".into();
    let snapshot = RankSummary { file: "a.pickle".into(), ..RankSummary::default() };
    let cases: [(&str, Vec<RankSummary>, Option<usize>); 9] = [
        ("ranks alone", net(), Some(0)),
        ("around the ranks", [vec![alone("mpirun", 9, 60)], net()].concat(), Some(1)),
        ("a shell and a launcher", [vec![alone("sh", 8, 60), alone("mpirun", 9, 60)], net()].concat(), Some(2)),
        ("while they ran", [net(), vec![alone("helper", 12, 1)]].concat(), Some(0)),
        ("ended before", [vec![alone("build", 0, 9)], net()].concat(), None),
        ("ended before, by another host's clock", [vec![elsewhere], net()].concat(), Some(1)),
        ("two jobs of ranks", [net(), ranks_at("other", 0..2, 10)].concat(), None),
        ("no ranks", vec![alone("one", 0, 9), alone("two", 0, 9)], None),
        ("a snapshot whose process is not known", [vec![alone("mpirun", 9, 60), snapshot], net()].concat(), None),
    ];
    for (name, all, wanted) in cases {
        let jobs = jobs(&all);
        assert_eq!(job_with_ranks(&all, &jobs), wanted, "{name}: {jobs:?}");
    }
}

#[test]
fn of_two_files_of_a_rank_the_one_that_ends_last_counts() {
    let at = |file: &str, seconds: u64| {
        let mut one = summary("net", 3, 0, |process| process.duration_ns = seconds * 1_000_000_000);
        one.file = file.into();
        one
    };
    let ranks = Ranks::of(vec![at("a", 5), at("b", 9), at("c", 7)], Vec::new(), Vec::new());
    assert_eq!(ranks.ranks.iter().map(|rank| &*rank.file).collect::<Vec<_>>(), ["b"]);
    let second = |file: &str| SecondFile { file: file.into(), counts: "b".into() };
    assert_eq!(ranks.seconds, [second("a"), second("c")]);
}
