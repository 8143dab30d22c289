//! Plans, compared with a computation over every record and every set of changes, and with planted programs.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::super::tests::Planted;
use super::*;
use crate::analysis::absence::Absence;
use crate::snapshot::SnapshotData;
use crate::snapshot::testing::Story;

/// The parts of blocks' lives that it removes, the bytes that it moves, and whether it excludes other changes of its
/// blocks.
type DrawnChange = (Vec<(usize, usize, usize)>, u64, bool);

/// A program of blocks with random lives.
fn story(ops: &[(u64, bool, usize)]) -> SnapshotData {
    let mut story = Story::cuda(0);
    let mut live = Vec::new();
    for (number, (size, is_alloc, nth)) in ops.iter().enumerate() {
        story.at(number as u64 + 1);
        if *is_alloc || live.is_empty() {
            story.alloc(number, *size);
            live.push(number);
        } else {
            story.free(live.remove(nth % live.len()));
        }
    }
    story.build()
}

/// Changes that remove parts of the lives of random blocks. Some of them allow no other change of their blocks, and add
/// bytes.
fn candidates(data: &SnapshotData, log: &LogReplay, drawn: &[DrawnChange]) -> Vec<Candidate> {
    let lives: Vec<Absence> = data.devices[0]
        .records
        .iter()
        .filter_map(|record| record.alloc_seq.filter(|_| record.kind == crate::snapshot::RecordKind::Alloc))
        .map(|seq| {
            let from = log.allocated_at(seq).unwrap();
            let (until, size) = (log.freed_at(seq).unwrap_or(usize::MAX), data.devices[0].records[from].size);
            Absence { seq, from, until, size }
        })
        .collect();
    let part = |(nth, from, length): &(usize, usize, usize)| {
        let life = lives[nth % lives.len()];
        let from = (life.from + from).min(life.until - 1);
        Absence { from, until: (from + 1 + length).min(life.until), ..life }
    };
    let row = || PlannedChange::OwnStep(data.devices[0].records[0].block(), 0);
    let of = |(parts, moved, is_alone): &DrawnChange| {
        let absences: Vec<Absence> = parts.iter().map(part).collect();
        let candidate = Candidate { moved: *moved, ..Candidate::of(row(), absences) };
        if !is_alone {
            return candidate;
        }
        // At most one block at a time, so that nothing counts twice.
        let only = candidate.absences[0];
        let added = [(only.from.saturating_sub(1), 1), (only.from, -1)];
        let changes = only.changes().into_iter().chain(added).collect();
        Candidate { changes, blocks: vec![only.seq], absences: Vec::new(), ..candidate }
    };
    drawn.iter().map(of).collect()
}

/// The peak by definition: the live blocks at each record that no change has removed. A change that excludes other
/// changes of its blocks takes precedence.
fn peak_by_definition(data: &SnapshotData, log: &LogReplay, chosen: &[&Candidate]) -> i64 {
    let device = &data.devices[0];
    let mut owned = std::collections::BTreeSet::new();
    let counted: Vec<&&Candidate> = chosen
        .iter()
        .filter(|candidate| candidate.blocks.iter().all(|seq| owned.insert(*seq)) || candidate.blocks.is_empty())
        .collect();
    (0..device.records.len())
        .map(|at| {
            let is_gone = |seq| {
                let absences = counted.iter().flat_map(|candidate| &candidate.absences);
                !owned.contains(&seq) && absences.into_iter().any(|absence| absence.seq == seq && absence.is_at(at))
            };
            let live = device.records[..=at].iter().filter_map(|record| {
                let seq = record.alloc_seq.filter(|_| record.kind == crate::snapshot::RecordKind::Alloc)?;
                let is_live = log.freed_at(seq).is_none_or(|freed| freed > at) && !is_gone(seq);
                is_live.then_some(record.size as i64)
            });
            let own = counted.iter().flat_map(|candidate| &candidate.changes).filter(|(from, _)| *from <= at);
            live.sum::<i64>() + own.map(|(_, bytes)| bytes).sum::<i64>()
        })
        .max()
        .unwrap_or(0)
}

type Drawn = (Vec<(u64, bool, usize)>, Vec<DrawnChange>, u64);

fn drawn() -> impl Strategy<Value = Drawn> {
    let ops = prop::collection::vec((1..40u64, prop::bool::weighted(0.6), 0..8usize), 1..24);
    let parts = prop::collection::vec((0..24usize, 0..4usize, 0..12usize), 1..5);
    let moved = prop_oneof![Just(0u64), 1..100u64];
    (ops, prop::collection::vec((parts, moved, prop::bool::weighted(0.2)), 1..7), 1..100u64)
}

/// The smallest cost and the fewest changes that reach a budget, among all sets.
fn smallest(data: &SnapshotData, log: &LogReplay, all: &[Candidate], budget: i64) -> Option<(u64, usize)> {
    let sets = (0..1u32 << all.len()).map(|set| {
        let chosen: Vec<&Candidate> = (0..all.len()).filter(|at| set >> at & 1 == 1).map(|at| &all[at]).collect();
        (chosen.iter().map(|candidate| candidate.moved).sum(), chosen)
    });
    let reached = sets.filter(|(_, chosen)| peak_by_definition(data, log, chosen) <= budget);
    reached.map(|(moved, chosen): (u64, Vec<_>)| (moved, chosen.len())).min()
}

proptest! {
    #![proptest_config(crate::random::programs(2000))]

    #[test]
    fn a_plan_reaches_what_can_be_reached_and_nothing_of_it_can_be_left_out((ops, parts, percent) in drawn()) {
        let data = story(&ops);
        let device = DeviceView::of(&data, &data.devices[0]);
        let log = LogReplay::of(&device).unwrap();
        let all = candidates(&data, &log, &parts);
        let budget = device.peak.bytes * percent / 100;
        let found = search::choose(&log, &all, budget);
        let chosen: Vec<&Candidate> = found.iter().map(|at| &all[*at]).collect();
        let peak = log.peak(&search::changes(&chosen));
        prop_assert_eq!(peak, peak_by_definition(&data, &log, &chosen));
        let reaches = |chosen: &[&Candidate]| peak_by_definition(&data, &log, chosen) <= budget as i64;
        // A change that allows no other change of its blocks may prevent others. Only plain changes are sure to help
        // together.
        let only_plain = all.iter().all(|candidate| candidate.blocks.is_empty());
        if only_plain {
            prop_assert_eq!(peak <= budget as i64, reaches(&all.iter().collect::<Vec<_>>()));
        }
        if peak <= budget as i64 {
            for left_out in 0..chosen.len() {
                let others: Vec<&Candidate> = (0..chosen.len()).filter(|at| *at != left_out).map(|at| chosen[at]).collect();
                prop_assert!(!reaches(&others) || !only_plain, "{left_out} is not needed");
            }
        }
    }
}

/// Measures how far plans are from the smallest ones (docs/fit.md has the figures).
#[test]
fn nine_plans_in_ten_are_the_smallest_there_is() {
    let (mut compared, mut equal, mut without_moves) = (0, 0, 0);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..1500 {
        let (ops, parts, percent) = drawn().new_tree(&mut runner).unwrap().current();
        let data = story(&ops);
        let device = DeviceView::of(&data, &data.devices[0]);
        let log = LogReplay::of(&device).unwrap();
        let all = candidates(&data, &log, &parts);
        let budget = device.peak.bytes * percent / 100;
        let Some(least) = smallest(&data, &log, &all, budget as i64).filter(|least| least.1 > 0) else { continue };
        let found = search::choose(&log, &all, budget);
        let own = (found.iter().map(|at| all[*at].moved).sum::<u64>(), found.len());
        compared += 1;
        equal += usize::from(own == least);
        without_moves += usize::from((own.0 == 0) == (least.0 == 0));
    }
    println!("{equal} of {compared} are the smallest; {without_moves} agree in whether anything has to be moved");
    assert!(compared > 200 && equal * 10 >= compared * 9, "{equal} of {compared}");
    assert!(without_moves * 100 >= compared * 98, "{without_moves} of {compared}");
}

#[test]
fn of_two_changes_that_do_the_same_the_one_that_moves_nothing_is_taken() {
    let data = story(&[(10, true, 0), (10, true, 0)]);
    let log = LogReplay::of(&DeviceView::of(&data, &data.devices[0])).unwrap();
    let all = candidates(&data, &log, &[(vec![(0, 0, 24)], 1, false), (vec![(0, 0, 24)], 0, false)]);
    assert_eq!(search::choose(&log, &all, 10), [1]);
    assert_eq!(search::choose(&log, &all[..1], 10), [0]);
}

/// The first change allows no other change of its block, which it removes only before the peak.
#[test]
fn what_removes_nothing_of_the_excess_is_not_taken_and_prevents_no_other_change() {
    let data = story(&[(10, true, 0), (10, true, 0)]);
    let log = LogReplay::of(&DeviceView::of(&data, &data.devices[0])).unwrap();
    let all = candidates(&data, &log, &[(vec![(0, 0, 0)], 0, true), (vec![(0, 0, 24)], 1, false)]);
    assert_eq!(search::choose(&log, &all, 10), [1]);
}

/// Two phases with equal peaks: each change alone lowers nothing, but both together do.
#[test]
fn a_plan_lowers_two_peaks_of_one_height() {
    let mut planted = Planted::new();
    planted.alloc("w", 10).uses(&["w"]);
    for name in ["a", "b"] {
        planted.alloc(name, 100).uses(&[name]).alloc("x", 100).uses(&["x"]).free("x").free(name);
    }
    planted.uses(&["w"]);
    let data = planted.build();
    let device = DeviceView::of(&data, &data.devices[0]);
    let plan = device.plan(110).unwrap();
    assert_eq!((plan.recorded, plan.peak(), plan.short(), plan.moved()), (210, 110, 0, 0));
    assert!(
        plan.steps.iter().all(|step| matches!(&step.change, PlannedChange::Waste(row) if row.bytes == 100)),
        "{plan:?}"
    );
}

#[test]
fn what_is_within_the_budget_needs_no_change_and_what_nothing_helps_says_so() {
    let mut planted = Planted::new();
    planted.alloc("w", 100).uses(&["w"]).alloc("a", 100).uses(&["w", "a"]).free("a");
    let data = planted.build();
    let device = DeviceView::of(&data, &data.devices[0]);
    assert_eq!(device.plan(200).unwrap().steps, []);
    let plan = device.plan(150).unwrap();
    assert_eq!((plan.steps.len(), plan.short()), (0, 50));
}

/// Changes that move blocks to the host come last, and only if they are needed.
#[test]
fn what_moves_nothing_comes_first() {
    let mut planted = Planted::new();
    planted.alloc("w", 100).uses(&["w"]).alloc("old", 60).uses(&["old"]).alloc("a", 60);
    (0..40).for_each(|_| {
        planted.uses(&["a"]);
    });
    planted.free("old").free("a").alloc("next", 10).uses(&["w", "next"]);
    let data = planted.build();
    let device = DeviceView::of(&data, &data.devices[0]);
    let plan = device.plan(160).unwrap();
    assert_eq!((plan.recorded, plan.steps.len(), plan.peak(), plan.moved()), (220, 1, 160, 0), "{plan:?}");
    let plan = device.plan(110).unwrap();
    assert_eq!((plan.peak(), plan.moved()), (110, 200), "{plan:?}");
    assert_eq!(plan.steps.iter().map(|step| step.moved).collect::<Vec<_>>(), [0, 200]);
}

#[test]
fn what_lowers_the_peak_comes_before_what_only_lowers_the_rest() {
    let data =
        Story::cuda(0).alloc("all along", 100).alloc("at the peak", 60).free("at the peak").alloc("later", 50).build();
    let view = DeviceView::of(&data, &data.devices[0]);
    let log = LogReplay::of(&view).unwrap();
    let without = |label: usize, from, until, size| {
        let seq = data.devices[0].records[label].alloc_seq.unwrap();
        Candidate::of(
            PlannedChange::OwnStep(data.devices[0].records[0].block(), 0),
            vec![Absence { seq, from, until, size }],
        )
    };
    let (rest, peak) = (without(0, 2, usize::MAX, 100), without(1, 1, 2, 60));
    let sorted = by_saving(&log, vec![&rest, &peak]);
    assert!(std::ptr::eq(sorted[0], &peak) && std::ptr::eq(sorted[1], &rest));
    assert_eq!(log.peak(&search::changes(&sorted[..1])), 150);
}

/// A decoder: a loop over layers, each with its weights. The weights of the first `offloaded` layers are on the GPU
/// only during their products.
fn decoder(offloaded: usize) -> Planted {
    const LAYERS: usize = 6;
    let name = |layer: usize| format!("w{layer}");
    let mut planted = Planted::new();
    for layer in 0..LAYERS {
        planted.alloc(&name(layer), 100).uses(&[&name(layer)]);
        if layer < offloaded {
            planted.alloc("load", 1).uses(&["load"]).free("load").free(&name(layer));
        }
    }
    for _token in 0..5 {
        for layer in 0..LAYERS {
            planted.alloc("a", 10);
            if layer < offloaded {
                planted.alloc(&name(layer), 100);
            }
            planted.alloc("b", 5).uses(&[&name(layer), "a", "b"]);
            (0..20).for_each(|_| _ = planted.uses(&["a"]));
            if layer < offloaded {
                planted.free(&name(layer));
            }
            planted.free("b").free("a");
        }
    }
    planted
}

/// The longest gap of a block in the recording tells nothing about other tokens.
#[test]
fn weights_that_are_idle_between_tokens_are_moved_as_many_as_it_takes() {
    let data = decoder(0).build();
    let device = DeviceView::of(&data, &data.devices[0]);
    assert_eq!(device.peak.bytes, 615);
    for (budget, moved) in [(515, 2), (514, 3), (415, 3), (315, 4)] {
        let plan = device.plan(budget).unwrap();
        let [PlanStep { change: PlannedChange::Idle(row, [blocks, all]), .. }] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((*blocks, *all, row.bytes), (moved, 6, 100 * row.blocks), "{budget}");
        assert_eq!(plan.peak(), decoder(moved as usize).peak(), "{budget}");
        assert!(plan.peak() <= budget && decoder(moved as usize - 1).peak() > budget);
    }
    // Between loading and the first token, the first layer is used again too soon.
    assert_eq!(device.plan(115).unwrap().short(), 85);
}

proptest! {
    #![proptest_config(crate::random::programs(500))]

    #[test]
    fn no_fewer_first_blocks_reach_as_much((ops, parts, percent) in drawn()) {
        let data = story(&ops);
        let device = DeviceView::of(&data, &data.devices[0]);
        let log = LogReplay::of(&device).unwrap();
        let all: Vec<Candidate> =
            candidates(&data, &log, &parts).into_iter().filter(|candidate| candidate.blocks.is_empty()).collect();
        let budget = device.peak.bytes * percent / 100;
        let peak = |chosen: &[Candidate]| peak_by_definition(&data, &log, &chosen.iter().collect::<Vec<_>>());
        let reached = peak(&all).max(budget as i64);
        let found = search::with_fewest_blocks(&log, all.clone(), budget);
        prop_assert!(peak(&found) <= reached);
        for (at, of_all) in all.iter().enumerate() {
            let (kept, blocks) = (found[at].taken().count(), of_all.taken().collect::<Vec<_>>());
            prop_assert_eq!(found[at].taken().collect::<Vec<_>>(), blocks[..kept].to_vec());
            let mut fewer = found.clone();
            fewer[at].absences.retain(|absence| absence.seq < blocks[kept - 1]);
            prop_assert!(of_all.moved == 0 || kept == 1 || peak(&fewer) > reached, "{at}: {kept} of {blocks:?}");
        }
    }
}
