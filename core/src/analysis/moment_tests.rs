//! Compares moments with a naive replay of random programs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::analysis::{Key, scopes as scope_rows};
use crate::recording::DeviceView;
use crate::snapshot::SnapshotData;
use crate::snapshot::testing::{LINE_7, Story, two_lines_and_a_temporary};

const SCOPES: [&str; 3] = ["a", "a > b", "step 3"];

#[derive(Clone, Debug)]
enum ScopeOp {
    Alloc { size: u64 },
    Free { nth: usize },
    FreeUnknown { size: u64 },
    Scope { scope: usize, enter: bool },
}

fn op() -> impl Strategy<Value = ScopeOp> {
    prop_oneof![
        4 => (1..=64u64).prop_map(|size| ScopeOp::Alloc { size }),
        3 => any::<usize>().prop_map(|nth| ScopeOp::Free { nth }),
        1 => (1..5u64).prop_map(|size| ScopeOp::FreeUnknown { size }),
        3 => (0..SCOPES.len(), any::<bool>()).prop_map(|(scope, enter)| ScopeOp::Scope { scope, enter }),
    ]
}

/// The state after each nanosecond: sizes of live blocks by label, and bytes from before the recording.
type States = Vec<(BTreeMap<usize, u64>, u64)>;

fn run(ops: &[ScopeOp]) -> (SnapshotData, States) {
    let mut trace = Story::cpu();
    trace.before(1000);
    let (mut live, mut unknown) = (BTreeMap::new(), 1000);
    let mut states: States = vec![(live.clone(), unknown)];
    for (label, op) in ops.iter().enumerate() {
        trace.at(label as u64 + 1);
        match *op {
            ScopeOp::Alloc { size } => {
                trace.alloc(label, size);
                live.insert(label, size);
            }
            ScopeOp::Free { nth } => {
                if let Some(label) = live.keys().copied().nth(nth % live.len().max(1)) {
                    trace.free(label);
                    live.remove(&label);
                }
            }
            ScopeOp::FreeUnknown { size } if size <= unknown => {
                trace.free_from_before(size);
                unknown -= size;
            }
            ScopeOp::FreeUnknown { .. } => {}
            ScopeOp::Scope { scope, enter: true } => _ = trace.enter(SCOPES[scope]),
            ScopeOp::Scope { scope, enter: false } => _ = trace.leave(SCOPES[scope]),
        }
        states.push((live.clone(), unknown));
    }
    trace.lasting(ops.len() as u64);
    (trace.build(), states)
}

fn sizes(blocks: &[Block]) -> Vec<u64> {
    blocks.iter().map(|block| block.size).collect()
}

fn peak(moment: &Moment, data: &SnapshotData) -> Result<Peak, Error> {
    DeviceView::of(data, &data.devices[0]).at(moment).map(|live| (*live).clone())
}

proptest! {
    #[test]
    fn at_any_time_exactly_that_is_live_which_was_allocated_and_not_freed(ops in prop::collection::vec(op(), 0..60)) {
        let (data, states) = run(&ops);
        for (ns, (live, unknown)) in states.iter().enumerate() {
            let then = peak(&Moment::Time(ns as u64), &data).unwrap();
            let expected: Vec<u64> = live.values().copied().collect();
            prop_assert_eq!((sizes(&then.blocks), then.not_recorded), (expected, *unknown), "after {} ns", ns);
            prop_assert_eq!(then.bytes, live.values().sum::<u64>() + unknown);
        }
        let end = peak(&Moment::End, &data).unwrap();
        prop_assert_eq!(sizes(&end.blocks), states.last().unwrap().0.values().copied().collect::<Vec<_>>());
    }

    #[test]
    fn a_scopes_moment_is_the_total_that_its_row_has(ops in prop::collection::vec(op(), 0..60)) {
        let (data, _) = run(&ops);
        for row in scope_rows(&DeviceView::of(&data, &data.devices[0])) {
            let found = peak(&Moment::Scope(row.path.clone()), &data).ok().map(|peak| peak.bytes);
            prop_assert_eq!(found, row.total_peak, "{}", row.path);
        }
    }

    #[test]
    fn growth_is_what_is_live_at_the_end_and_was_not_there_before(
        ops in prop::collection::vec(op(), 0..60), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(ops.len() + 1);
        let (earlier, _) = run(&ops[..at]);
        let (data, states) = run(&ops);
        let since = Moment::Growth(Since::of(&earlier));
        let grown = peak(&since, &data).unwrap();
        let expected = states[ops.len()].0.iter().filter(|(label, _)| **label >= at).map(|(_, size)| *size);
        prop_assert_eq!(sizes(&grown.blocks), expected.collect::<Vec<_>>());
        let view = DeviceView::of(&data, &data.devices[0]);
        let note = since.notes(&view.at(&since).unwrap()).pop();
        prop_assert_eq!(note, Some(growth_note(&states[at], &states[ops.len()])));
        let allocated = peak(&Moment::Allocated, &data).unwrap();
        prop_assert_eq!(allocated.bytes, data.devices[0].stats.allocated_bytes.allocated);
    }
}

/// The expected note on the bytes that were live before.
fn growth_note(
    (before, unknown): &(BTreeMap<usize, u64>, u64),
    (now, unknown_now): &(BTreeMap<usize, u64>, u64),
) -> String {
    let gone = before.iter().filter(|(label, _)| !now.contains_key(label)).map(|(_, size)| size).sum::<u64>();
    let [was, is] = [before.values().sum::<u64>() + unknown, now.values().sum::<u64>() + unknown_now].map(Bytes);
    let change = if is.0 < was.0 { format!("-{}", Bytes(was.0 - is.0)) } else { format!("+{}", Bytes(is.0 - was.0)) };
    let freed = Bytes(gone + unknown - unknown_now);
    format!("{was} were live then and {is} now: {change}; {freed} of what was live then has been freed")
}

#[test]
fn a_moment_is_broken_down_like_the_peak() {
    let data = two_lines_and_a_temporary();
    let device = &data.devices[0];
    let view = DeviceView::of(&data, device);
    let end = view.at(&Moment::End).unwrap();
    assert_eq!(end.by(Key::Line), view.at_end().by(Key::Line));
    assert_eq!(end.by(Key::Age).total, end.total());
    let peak = view.at(&Moment::Time(device.peak.time_ns)).unwrap();
    assert_eq!(*peak, device.peak, "with what is below the threshold");
}

#[test]
fn the_step_is_named_by_its_number() {
    let mut trace = Story::cpu();
    trace
        .enter("step 3")
        .at(1)
        .alloc("x", 7)
        .on(LINE_7)
        .at(2)
        .leave("step 3")
        .enter("epoch 4")
        .enter("epoch 4 > step 4");
    trace.leave("epoch 4 > step 4").leave("epoch 4");
    let data = trace.build();
    assert_eq!(peak(&Moment::Step(3), &data).unwrap().bytes, 7);
    let error = |moment: Moment| peak(&moment, &data).unwrap_err().to_string();
    assert!(error(Moment::Step(4)).contains("name one: `epoch 4`, `step 4`"), "{}", error(Moment::Step(4)));
    assert!(error(Moment::Step(5)).contains("there are `step 3`, `epoch 4`, `step 4`"), "{}", error(Moment::Step(5)));
    assert!(error(Moment::Scope("none".into())).contains("no scope `none`"));
}

#[test]
fn what_the_log_has_lost_is_not_made_up() {
    let mut trace = Story::cpu();
    trace.at(5).alloc(1, 10).at(6).alloc(2, 20).at(7).free(1).overwritten(1);
    let data = trace.build();
    assert_eq!(sizes(&peak(&Moment::Time(6), &data).unwrap().blocks), [10, 20]);
    let error = peak(&Moment::Time(5), &data).unwrap_err().to_string();
    assert!(error.contains("the log begins at"), "{error}");
}

#[test]
fn a_scope_that_was_entered_before_the_log_is_no_moment_of_it() {
    let mut story = Story::cpu();
    story.at(1).enter("step 1").alloc("a", 5000).on(LINE_7);
    story.at(2).free("a");
    story.at(3).leave("step 1").enter("step 2").alloc("b", 100).on(LINE_7);
    story.at(4).leave("step 2");
    story.overwritten(2);
    let data = story.build();
    assert_eq!(peak(&Moment::Step(2), &data).unwrap().bytes, 100);
    let error = peak(&Moment::Step(1), &data).unwrap_err().to_string();
    assert!(error.contains("`step 1` was not entered on cpu in what the log still holds"), "{error}");
}

#[test]
fn small_blocks_are_said_to_be_missing_where_they_are() {
    let mut story = Story::cpu();
    story.below_threshold(5).at(1).enter("step 1").at(2).alloc("low", 10).at(3).leave("step 1");
    story.at(4).enter("step 2").at(5).alloc("high", 20).at(6).leave("step 2").at(7).free("high");
    let mut data = story.build();
    data.settings.min_size = 100;
    let device = DeviceView::of(&data, &data.devices[0]);
    let of = |moment: Moment| {
        let live = device.at(&moment).unwrap();
        (live.total(), moment.notes(&live).len())
    };
    assert_eq!([Moment::Step(1), Moment::Step(2)].map(of), [(10, 1), (35, 0)], "step 2 has the peak");
    assert_eq!([Moment::Peak, Moment::End].map(of), [(35, 0), (15, 0)]);
}

#[test]
fn what_is_missing_from_a_moment_is_noted_and_nothing_else() {
    let mut story = Story::cpu();
    story.at(1).enter("step 1").alloc("early", 10).at(2).leave("step 1").enter("step 2").leave("step 2");
    story.at(3).enter("step 1").alloc("late", 10).at(4).leave("step 1").lasting(9);
    let notes = |data: &SnapshotData, moment: Moment| {
        moment.notes(&DeviceView::of(data, &data.devices[0]).at(&moment).unwrap())
    };
    let from_size = |min_size, mut data: SnapshotData| {
        data.settings.min_size = min_size;
        data
    };
    let whole = from_size(1, story.build());
    let all = [Moment::Peak, Moment::End, Moment::Allocated, Moment::Step(1), Moment::Scope("step 1".into())];
    all.into_iter().for_each(|moment| assert_eq!(notes(&whole, moment), [""; 0]));
    let cut = from_size(1, story.overwritten(1).build());
    assert_eq!([Moment::Peak, Moment::End].map(|moment| notes(&cut, moment).len()), [0, 0]);
    assert_eq!(notes(&cut, Moment::Allocated), ["1 older records were overwritten and are not included"]);
    let early = "the log no longer holds 1 of the times that it was entered";
    assert_eq!(notes(&cut, Moment::Scope("step 1".into())), [early]);
    let small = "blocks smaller than 1 KiB are not included: they have no records";
    assert_eq!(notes(&from_size(1024, whole), Moment::Allocated), [small]);
}

#[test]
fn a_scope_that_was_entered_with_the_logs_first_record_is_of_the_log() {
    let mut story = Story::cpu();
    story.at(1).alloc("gone", 10).at(2).enter("a").alloc("kept", 20).at(3).leave("a").overwritten(1);
    let mut data = story.build();
    data.settings.min_size = 1;
    let moment = Moment::Scope("a".into());
    let view = DeviceView::of(&data, &data.devices[0]);
    let live = view.at(&moment).unwrap();
    assert_eq!((live.total(), moment.notes(&live).len()), (30, 0));
}

/// Two of the scope's three times began before the log; it was left for the last time before the highest moment.
#[test]
fn times_of_a_scope_that_began_before_the_log_end_before_those_since() {
    let mut story = Story::cpu();
    story.at(1).alloc("gone", 1).enter("a").at(2).enter("a").at(3).alloc("first", 10).at(4).leave("a").leave("a");
    story.at(5).enter("a").at(6).alloc("in it", 20).at(7).leave("a").at(8).alloc("after it", 40).overwritten(1);
    assert_eq!(peak(&Moment::Scope("a".into()), &story.build()).unwrap().bytes, 31);
}

#[test]
fn a_moment_has_its_time() {
    let mut story = Story::cpu();
    story.at(3).alloc("a", 10).at(5).free("a").lasting(9);
    let data = story.build();
    let time = |moment| peak(&moment, &data).unwrap().time_ns;
    assert_eq!(
        [Moment::Peak, Moment::Time(4), Moment::Time(6), Moment::End, Moment::Allocated].map(time),
        [3, 4, 6, 9, 9]
    );
    let view = DeviceView::of(&data, &data.devices[0]);
    let notes = |ns| Moment::Time(ns).notes(&view.at(&Moment::Time(ns)).unwrap());
    let end = "the recording ends after 0.000 s".to_owned();
    assert_eq!([9, 10].map(|ns| notes(ns).contains(&end)), [false, true]);
}

#[test]
fn names_are_listed_once_and_eight_at_most() {
    let mut story = Story::cpu();
    for number in [1, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
        story.enter(&format!("part {number}")).leave(&format!("part {number}"));
    }
    story.enter("outer").enter("outer > part 1").leave("outer > part 1").leave("outer").enter("77").leave("77");
    let data = story.build();
    let listed = "there are `part 1`, `part 2`, `part 3`, `part 4`, `part 5`, `part 6`, `part 7`, `part 8`";
    let error = |moment: Moment| peak(&moment, &data).unwrap_err().to_string();
    assert!(error(Moment::Scope("none".into())).ends_with(listed), "{}", error(Moment::Scope("none".into())));
    assert!(error(Moment::Step(77)).ends_with(listed), "a number alone is no step's name: {}", error(Moment::Step(77)));
}

#[test]
fn growth_counts_what_is_below_the_threshold() {
    let mut story = Story::cpu();
    story.below_threshold(5000).at(1).alloc("a", 1000);
    let earlier = story.build();
    story.at(2).alloc("b", 2000).at(3).free("a");
    let data = story.build();
    let since = Moment::Growth(Since::of(&earlier));
    let notes = since.notes(&DeviceView::of(&data, &data.devices[0]).at(&since).unwrap());
    let expected = "5.859 KiB were live then and 6.836 KiB now: +1000 B; 1000 B of what was live then has been freed";
    assert_eq!(notes.last().unwrap(), expected);
}
