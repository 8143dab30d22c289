use super::*;
use crate::attribute::Attribution;
use crate::snapshot::SnapshotData;
use crate::snapshot::testing::{Story, frame, registry, stacks};

/// The stack of a block without a user line. Stacks 1, 2 … are those of lines 1, 2 …
const NO_LINE: StackId = StackId(50);

/// A recording of `steps`: `+3` allocates block 3, `-3` frees it. Block n has 100 bytes and line n of one function.
/// Blocks from 50 on have 7 bytes and no user line.
fn story(steps: &[i64]) -> Story {
    story_of(|line| frame("net::Net::forward", "/home/u/net/src/model.rs", line), steps)
}

/// The same recording with these lines.
fn story_of(line: impl Fn(u32) -> Frame, steps: &[i64]) -> Story {
    let mut trace = Story::cpu();
    trace.stacks(stacks((1..50).map(line).chain([Frame::default()]).collect(), (0..50).map(|line| [line])));
    for step in steps {
        let block = step.unsigned_abs();
        match (*step > 0, block < 50) {
            (true, true) => trace.alloc(block, 100).on(StackId(block as u32)),
            (true, false) => trace.alloc(block, 7).on(NO_LINE),
            (false, _) => trace.free(block),
        };
    }
    trace
}

fn recording(steps: &[i64]) -> SnapshotData {
    story(steps).build()
}

fn found(data: &SnapshotData) -> Vec<LiveTwice> {
    live_twice(&Attribution::new(data), &DeviceView::of(data, &data.devices[0]))
}

#[test]
fn a_shadowed_block_is_live_until_its_successor_is_gone() {
    let data = recording(&[1, 2, 50, -50, 3, -3, -2, -1]);
    let lines = [1, 2, 3].map(|line| format!("src/model.rs:{line} (Net::forward)")).to_vec();
    let row = LiveTwice { lines, size: 100, count: 3, older: 200, peak_without: Some(200) };
    assert_eq!(found(&data), [row]);
}

#[test]
fn the_peak_without_is_that_of_the_program_that_drops_them() {
    // Temporaries, an unrelated block of the same height, and a block that stays.
    let kept = recording(&[60, 1, 51, -51, 2, 52, 53, -52, 3, 54, -54, -53, -3, -2, -1, 55]);
    let dropped = recording(&[60, 1, 51, -51, 2, -1, 52, 53, -52, 3, -2, 54, -54, -53, -3, 55]);
    assert_eq!(found(&kept)[0].peak_without, Some(dropped.devices[0].peak.bytes));
    assert!(dropped.devices[0].peak.bytes < kept.devices[0].peak.bytes);
}

#[test]
fn what_each_turn_of_a_loop_holds_is_dropped_in_each() {
    let kept = recording(&[1, 2, 3, -3, -2, -1].repeat(3));
    assert_eq!(found(&kept)[0].peak_without, Some(200));
    // The first two blocks of lines 1 and 2 are in a list, which is dropped from its end.
    let mut collected = story(&[1, 2]);
    for line in [1u32, 2, 3] {
        collected.alloc(10 * line, 100).on(StackId(line));
    }
    collected.free(30).free(20).free(10).alloc(50, 7).on(NO_LINE).free(50).free(2).free(1);
    let found = found(&collected.build());
    let chain = found.iter().find(|row| row.count == 3).unwrap();
    assert_eq!(chain.peak_without, Some(400), "the list is not shadowed");
}

#[test]
fn no_alarm_where_nothing_is_gained_or_known() {
    let cases: [(&str, &[i64]); 6] = [
        ("two are needed to make the second", &[1, 2, -2, -1]),
        ("the parts of a structure", &[1, 2, 3, -1, -2, -3]),
        ("replaced one by one", &[1, 2, -1, 3, -2, -3]),
        ("freed at different times", &[1, 2, 3, -3, 50, -2, 51, -1]),
        ("still live", &[1, 2, 3]),
        ("as high elsewhere", &[1, 2, 3, -3, -2, -1, 11, 12, 13]),
    ];
    for (what, steps) in cases {
        assert_eq!(found(&recording(steps)), [], "{what}");
    }
}

#[test]
fn blocks_that_the_error_of_a_refused_allocation_dropped_are_none() {
    let refused_at = |steps: &[i64]| {
        let mut trace = story(&[1, 2, 3]);
        trace.at(5).refused(500, None).at(6);
        steps.iter().for_each(|step| _ = trace.free(step.unsigned_abs()));
        found(&trace.build())
    };
    assert_eq!(refused_at(&[-3, -2, -1]), []);
    let mut trace = Story::cpu();
    trace.refused(500, None).at(5);
    let mut data = recording(&[1, 2, 3, -3, -2, -1]);
    data.devices[0].ooms = trace.build().devices[0].ooms.clone();
    data.devices[0].ooms.iter_mut().for_each(|refused| refused.time_ns = u64::MAX);
    assert_eq!(found(&data).len(), 1, "it was refused afterwards");
}

#[test]
fn a_log_that_lost_records_gives_no_other_peak() {
    let mut trace = story(&[50, 1, 2, 3, -3, -2, -1]);
    assert_eq!(found(&trace.build())[0].peak_without, Some(207));
    assert_eq!(found(&trace.overwritten(1).build())[0].peak_without, None);
    let mut data = recording(&[1, 2, 3, -3, -2, -1]);
    assert_eq!(found(&data)[0].peak_without, Some(200));
    data.devices[0].peak.bytes += 1;
    assert_eq!(found(&data)[0].peak_without, None);
}

#[test]
fn blocks_of_one_line_or_of_different_functions_are_none() {
    let (function, file) = ("net::Net::forward", "/home/u/net/src/model.rs");
    let rows = |line: &dyn Fn(u32) -> Frame| found(&story_of(line, &[1, 2, 3, -3, -2, -1]).build()).len();
    assert_eq!(rows(&|line| frame(function, file, line)), 1);
    assert_eq!(rows(&|_| frame(function, file, 1)), 0);
    assert_eq!(rows(&|line| frame(&format!("function {line}"), file, line)), 0);
    assert_eq!(rows(&|line| frame(function, &registry("model-1.0.0/src/lib.rs"), line)), 0, "a library's");
}

#[test]
fn what_is_made_of_nothing_takes_nobodys_place() {
    let made_by = |operator: &str| {
        let operator =
            frame(&format!("candle_core::Tensor::{operator}"), &registry("candle-core-0.11.1/src/tensor.rs"), 1);
        let lines = [10, 11, 12].map(|line| frame("net::product", "/home/u/net/src/main.rs", line));
        let mut trace = Story::cpu();
        trace.stacks(stacks([vec![operator], lines.to_vec()].concat(), [[0, 1], [0, 2], [0, 3]]));
        for block in 1..4 {
            trace.alloc(block, 100).on(StackId(block as u32));
        }
        for block in [3, 2, 1] {
            trace.free(block);
        }
        found(&trace.build()).len()
    };
    assert_eq!(["randn", "relu"].map(made_by), [0, 1], "the operands of a product, and what comes of each other");
}
