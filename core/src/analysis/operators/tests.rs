//! Compares operator series of random two-thread logs with an oracle of thirty obvious lines.

use proptest::prelude::*;

use super::*;
use crate::recording::DeviceView;
use crate::snapshot::testing::{Story, frame, registry, stacks};
use crate::snapshot::{Record, RecordKind, SnapshotData, StackId, Stacks, ThreadId};

/// Stacks 1 and 2 are `softmax` of line 7, 3 is `relu` of line 8, 4 is the same `relu` called from elsewhere, 5 is no
/// operator.
fn program() -> Stacks {
    let [core, nn] = ["candle-core-0.11.1/src/tensor.rs", "candle-nn-0.11.1/src/ops.rs"].map(registry);
    let frames = vec![
        frame("candle_core::tensor::Tensor::exp", &core, 1),
        frame("candle_core::tensor::Tensor::sum", &core, 2),
        frame("candle_core::tensor::Tensor::relu", &core, 3),
        frame("candle_nn::ops::softmax", &nn, 4),
        frame("candle_nn::ops::softmax", &nn, 5),
        frame("net::forward", "/home/u/net/src/main.rs", 7),
        frame("net::forward", "/home/u/net/src/main.rs", 8),
        frame("net::main", "/home/u/net/src/main.rs", 9),
    ];
    stacks(frames, [&[0, 3, 5, 7][..], &[1, 4, 5, 7], &[2, 6, 7], &[2, 7], &[7]])
}

const SITE: [Option<(&str, u32)>; 6] =
    [None, Some(("softmax", 7)), Some(("softmax", 7)), Some(("relu", 8)), Some(("relu", 9)), None];

#[derive(Clone, Debug)]
enum CallOp {
    Alloc { thread: u32, stack: u32, size: u64 },
    Free { thread: u32, nth: usize },
    Mark { thread: u32, enter: bool },
}

fn op() -> impl Strategy<Value = CallOp> {
    prop_oneof![
        5 => (1..3u32, 0..6u32, 1..100u64).prop_map(|(thread, stack, size)| CallOp::Alloc { thread, stack, size }),
        4 => (1..3u32, 0..5usize).prop_map(|(thread, nth)| CallOp::Free { thread, nth }),
        1 => (1..3u32, any::<bool>()).prop_map(|(thread, enter)| CallOp::Mark { thread, enter }),
    ]
}

fn snapshot(ops: &[CallOp]) -> SnapshotData {
    story(ops).build()
}

/// A story with one event per nanosecond.
fn story(ops: &[CallOp]) -> Story {
    let (mut trace, mut live) = (Story::cpu(), Vec::new());
    trace.before(1000).stacks(program());
    for (time_ns, op) in (1u64..).zip(ops) {
        trace.at(time_ns);
        match *op {
            CallOp::Alloc { thread, stack, size } => {
                trace.thread(thread).alloc(time_ns, size).on(StackId(stack));
                live.push(time_ns);
            }
            // As in real programs, the newest blocks are freed most often.
            CallOp::Free { thread, nth } if nth < live.len() => {
                trace.thread(thread).free(live.remove(live.len() - 1 - nth));
            }
            CallOp::Free { .. } => {}
            CallOp::Mark { thread, enter } => {
                trace.thread(thread);
                if enter {
                    trace.enter("forward")
                } else {
                    trace.leave("forward")
                };
            }
        }
    }
    trace
}

/// The records of each call, found thread by thread.
fn naive_calls(data: &SnapshotData) -> Vec<Vec<usize>> {
    let device = &data.devices[0];
    let mut all = Vec::new();
    for thread in [ThreadId(1), ThreadId(2)] {
        // Records that belong to the call, and records that belong to it only if it continues.
        let (mut sure, mut maybe): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut marks = device.marks.iter().filter(|mark| mark.thread == thread).map(|mark| mark.time_ns).peekable();
        for (at, record) in device.records.iter().enumerate().filter(|(_, record)| record.thread == thread) {
            let mut ended = false;
            while marks.next_if(|time| *time <= record.time_ns).is_some() {
                ended = true;
            }
            let allocs: Vec<&Record> =
                sure.iter().map(|at| &device.records[*at]).filter(|record| record.kind == RecordKind::Alloc).collect();
            let site = |record: &Record| SITE[record.alloc_stack.0 as usize];
            if record.kind == RecordKind::Alloc {
                let goes_on = !ended && allocs.first().is_some_and(|first| site(first) == site(record));
                let newest = allocs
                    .last()
                    .filter(|newest| maybe.len() == 1 && newest.size < record.size && newest.stack == record.stack);
                let again = allocs.iter().any(|before| before.stack == record.stack) && newest.is_none();
                if !goes_on || again {
                    all.push(std::mem::take(&mut sure));
                    maybe.clear();
                }
                sure.append(&mut maybe);
                sure.extend(site(record).map(|_| at));
                continue;
            }
            let own = allocs.iter().any(|alloc| alloc.alloc_seq == record.alloc_seq);
            let older = allocs.first().is_none_or(|first| record.alloc_seq < first.alloc_seq);
            let newest = allocs.last().is_some_and(|newest| newest.alloc_seq == record.alloc_seq);
            if ended || (!own && older) {
                all.push(std::mem::take(&mut sure));
                maybe.clear();
            } else if own && (newest || !maybe.is_empty()) {
                maybe.push(at);
            } else if own {
                sure.push(at);
            }
        }
        all.push(sure);
    }
    all.retain(|call| !call.is_empty());
    all.sort_by_key(|call| *call.last().unwrap());
    all
}

proptest! {
    #![proptest_config(crate::random::programs(2000))]

    /// 1. The calls are those of the oracle, with the device's totals around them. 2. The bytes added by calls and
    ///    elsewhere add up to the change of the total. 3. If the device's peak lies in a call, it is the largest peak
    ///    of a call.
    #[test]
    fn calls_and_their_memory_are_those_of_the_oracle(ops in prop::collection::vec(op(), 0..60)) {
        let data = snapshot(&ops);
        let device = &data.devices[0];
        let mut totals = vec![1000u64];
        for record in &device.records {
            let size = record.size as i64;
            let change = if record.kind == RecordKind::Alloc { size } else { -size };
            totals.push(totals.last().unwrap().saturating_add_signed(change));
        }
        let series = operators(&DeviceView::of(&data, device));
        let naive = naive_calls(&data);
        prop_assert_eq!(series.calls.len(), naive.len());
        let mut holds_peak = false;
        for (call, records) in series.calls.iter().zip(&naive) {
            let (first, last) = (records[0], *records.last().unwrap());
            let added: i64 = records.iter().map(|at| totals[at + 1] as i64 - totals[*at] as i64).sum();
            prop_assert_eq!((call.added, call.before, call.allocated), (added, totals[first], totals[last + 1]));
            let peak = *totals[first + 1..=last + 1].iter().max().unwrap();
            prop_assert_eq!(call.peak, peak);
            holds_peak |= peak == device.peak.bytes;
        }
        let added: i64 = series.calls.iter().map(|call| call.added).sum();
        prop_assert_eq!(added + series.added_elsewhere, *totals.last().unwrap() as i64 - 1000);
        prop_assert_eq!(holds_peak, series.calls.iter().map(|call| call.peak).max() == Some(device.peak.bytes));
    }
}

fn alloc(stack: u32) -> CallOp {
    CallOp::Alloc { thread: 1, stack, size: 10 }
}

#[test]
fn names_have_running_numbers_from_0_for_each_operator() {
    let data = snapshot(&[alloc(1), alloc(2), alloc(1), alloc(3), alloc(4), alloc(4), alloc(5), alloc(3)]);
    let series = operators(&DeviceView::of(&data, &data.devices[0]));
    let names: Vec<String> = series.calls.iter().map(OperatorCall::name).collect();
    assert_eq!(names, ["softmax_0", "softmax_1", "relu_0", "relu_1", "relu_2", "relu_3"]);
    assert_eq!(&*series.calls[2].line, "/home/u/net/src/main.rs:8 (net::forward)".trim_start_matches("/home/u/net/"));
}

#[test]
fn the_calls_that_added_most_come_first() {
    let sized = |stack, size| CallOp::Alloc { thread: 1, stack, size };
    let data = snapshot(&[sized(3, 5), sized(1, 50), sized(4, 7)]);
    let series = operators(&DeviceView::of(&data, &data.devices[0]));
    let top: Vec<(String, i64)> = series.top(2).iter().map(|call| (call.name(), call.added)).collect();
    assert_eq!(top, [("softmax_0".to_owned(), 50), ("relu_1".to_owned(), 7)]);
}

#[test]
fn scopes_with_usual_names_and_outermost_scopes_are_markers() {
    let mut trace = Story::cpu();
    trace.stacks(program());
    trace.at(1).enter("step 1").enter("step 1 > forward").alloc("softmax", 10).on(StackId(1));
    trace.at(2).enter("step 1 > forward > forward").leave("step 1 > forward > forward");
    trace.enter("step 1 > forward > block").leave("step 1 > forward > block").leave("step 1 > forward");
    trace.alloc("relu", 10).on(StackId(3));
    trace.at(3).enter("step 1 > Backward pass").leave("step 1 > Backward pass");
    trace.alloc("softmax again", 10).on(StackId(1));
    trace.at(4).enter("step 1 > optim").leave("step 1 > optim").leave("step 1");
    trace.alloc("relu again", 10).on(StackId(3));
    let data = trace.build();
    let markers = operators(&DeviceView::of(&data, &data.devices[0])).markers;
    let shown: Vec<(&str, MarkerKind, usize)> = markers.iter().map(|m| (&*m.name, m.kind, m.call)).collect();
    assert_eq!(
        shown,
        [
            ("step 1", MarkerKind::Scope, 0),
            ("forward", MarkerKind::Forward, 0),
            ("Backward pass", MarkerKind::Backward, 2),
            ("optim", MarkerKind::Optimizer, 3),
        ]
    );
}
