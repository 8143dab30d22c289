//! Each kind of finding: a recording that has it, and one that almost has it.

use std::collections::BTreeSet;

use super::*;
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, frame, registry, stacks, two_lines_and_a_temporary};
use crate::snapshot::{BlockUse, BlockUses, CallTime, Category, Frame, LoadedObject, Pool, SnapshotData, StackId};

fn found(trace: &Story) -> Vec<Finding> {
    let data = trace.build();
    findings(&DeviceView::of(&data, &data.devices[0]))
}

fn kinds(trace: &Story) -> Vec<&'static str> {
    found(trace).iter().map(|finding| finding.kind.word()).collect()
}

const TENSOR: &str = "candle-core-0.11.1/src/tensor.rs";

/// Stack 1 is an operator of candle, stack 2 the same in a backward pass, stack 3 the same in `AdamW::step`.
fn operator(name: &str) -> Story {
    let frames = vec![
        frame(&format!("candle_core::tensor::Tensor::{name}"), &registry(TENSOR), 700),
        frame("net::main", "/home/u/net/src/main.rs", 9),
        frame("candle_core::tensor::Tensor::backward", &registry("candle-core-0.11.1/src/backprop.rs"), 160),
        frame("candle_nn::optim::AdamW::step", &registry("candle-nn-0.11.1/src/optim.rs"), 150),
    ];
    let mut trace = Story::cpu();
    trace.stacks(stacks(frames, [&[0, 1][..], &[0, 2, 1], &[0, 3, 1]]));
    trace
}

const FORWARD: StackId = StackId(1);
const BACKWARD: StackId = StackId(2);
const STEP: StackId = StackId(3);

#[test]
fn an_ordinary_recording_has_none() {
    let data = two_lines_and_a_temporary();
    assert_eq!(findings(&DeviceView::of(&data, &data.devices[0])), []);
}

#[test]
fn an_optimizers_transient_is_many_times_its_largest_parameter() {
    let step = |results: u64| {
        let mut trace = operator("affine");
        trace.alloc("weight", 1000).on(FORWARD).named("weight", Category::Parameter);
        (0..results).for_each(|n| _ = trace.alloc(n, 1000).on(STEP));
        (0..results).for_each(|n| _ = trace.free(n));
        trace
    };
    let found = found(&step(14));
    assert_eq!((found[0].kind.word(), found[0].cost), ("optimizer_transient", Cost::OfPeak(14_000)));
    assert!(found[0].what.contains("14 times"), "{}", found[0].what);
    assert!(!kinds(&step(4)).contains(&"optimizer_transient"), "what the cured step needs");
}

#[test]
fn a_cache_of_variables_is_kept_unless_something_is_trained() {
    let cache = |keeps: bool, trains: bool, weights: &str| {
        let mut trace = operator("cat");
        trace.alloc("weight", 1000).named("weight", Category::Parameter);
        for n in 1..=12u64 {
            trace.alloc(n, 100 * n).on(FORWARD);
            if n > 1 && !keeps {
                trace.free(n - 1);
            }
        }
        if !trains {
            // No stack contains the frames of the backward pass.
            trace.stacks(stacks(
                vec![
                    frame("candle_core::tensor::Tensor::cat", &registry(TENSOR), 700),
                    frame("net::main", "/home/u/net/src/main.rs", 9),
                    frame("load", &registry(weights), 30),
                ],
                [&[0, 1][..], &[2, 1]],
            ));
        }
        trace
    };
    let (variables, tensors) = ("candle-nn-0.11.1/src/var_map.rs", "candle-nn-0.11.1/src/var_builder.rs");
    let finding = found(&cache(true, false, variables));
    assert_eq!((finding[0].kind.word(), finding[0].cost), ("kept_by_variables", Cost::OfPeak(6600)), "{finding:?}");
    for clean in [cache(false, false, variables), cache(true, true, variables), cache(true, false, tensors)] {
        assert!(!kinds(&clean).contains(&"kept_by_variables"));
    }
}

#[test]
fn a_square_matrix_is_named_with_its_operator() {
    let frames = |name: &str| frame(&format!("candle_core::tensor::Tensor::{name}"), &registry(TENSOR), 700);
    let sums = |square: StackId| {
        let frames = vec![frames("triu2"), frames("cumsum"), frame("net::main", "/home/u/net/src/main.rs", 9)];
        let mut trace = Story::cpu();
        trace.stacks(stacks(frames, [&[0, 1, 2][..], &[1, 2], &[0, 2]]));
        trace.alloc("square", 10_000).on(square).alloc("sums", 100).on(StackId(2)).free("square");
        trace
    };
    let finding = found(&sums(StackId(1)));
    assert_eq!((finding[0].kind.word(), finding[0].cost), ("square", Cost::OfPeak(10_000)));
    assert!(finding[0].what.starts_with("cumsum "), "{}", finding[0].what);
    let asked_for = StackId(3);
    assert_eq!(kinds(&sums(asked_for)), [""; 0]);
}

/// Five steps; each allocates in `forward`, and some retain the block.
fn steps(keeps: impl Fn(usize) -> bool) -> Story {
    let mut trace = Story::cpu();
    for step in 0..5 {
        let (name, at) = (format!("step {step}"), 10 * step as u64 + 1);
        trace.at(at).enter(&name).at(at + 1).alloc(step, 1000).on(LINE_7);
        if !keeps(step) {
            trace.at(at + 2).free(step);
        }
        trace.at(at + 3).leave(&name);
    }
    trace
}

#[test]
fn what_nearly_every_step_leaves_is_growth() {
    let finding = found(&steps(|_| true));
    assert_eq!((finding[0].kind.word(), finding[0].cost), ("growth", Cost::AtEnd(3000)), "{finding:?}");
    assert!(finding[0].what.contains("4 of 5 scopes `step #`"), "{}", finding[0].what);
    assert!(finding[0].line.as_ref().unwrap().contains("src/model.rs:7"), "{:?}", finding[0].line);
    for (clean, why) in [
        (steps(|step| step == 0), "what the first one makes for all"),
        (steps(|step| step == 4), "the snapshot is of the last one"),
        (steps(|step| step > 2), "two of five"),
    ] {
        assert!(!kinds(&clean).contains(&"growth"), "{why}");
    }
}

/// Repetitions of one line, each with a short-lived block of another line. `frees` says after which repetition a
/// block is freed; the others are freed at the end.
fn repeated(count: usize, frees: impl Fn(usize) -> Option<usize>) -> Story {
    let mut trace = Story::cpu();
    for at in 0..count {
        trace.at(10 * at as u64 + 1).enter("step").alloc(at, 1000).on(LINE_7);
        trace.alloc("other", 10).on(LINE_9).free("other").leave("step");
        (0..=at).filter(|kept| frees(*kept) == Some(at)).for_each(|kept| _ = trace.free(kept));
    }
    trace.at(10 * count as u64 + 1);
    (0..count).filter(|kept| frees(*kept).is_none_or(|at| at >= count)).for_each(|kept| _ = trace.free(kept));
    trace
}

#[test]
fn what_stays_of_each_repetition_is_growth_although_all_is_free_at_the_end() {
    let finding = found(&repeated(40, |_| None));
    assert_eq!((finding[0].kind.word(), finding[0].cost), ("growth", Cost::OfPeak(40_000)), "{finding:?}");
    assert_eq!(finding[0].what, "memory accumulates: 40 of 40 scopes `step` left blocks that stay");
    assert!(finding[0].line.as_ref().unwrap().contains("src/model.rs:7"), "{:?}", finding[0].line);
    let one_of_four = found(&repeated(64, |at| (at % 4 != 1).then_some(at)));
    assert_eq!((one_of_four[0].kind.word(), one_of_four[0].cost), ("growth", Cost::OfPeak(16_000)), "{one_of_four:?}");
    let at_random = |at: usize| (at as u64).wrapping_mul(6364136223846793005) >> 58;
    for (clean, why) in [
        (repeated(40, |at| Some(at + 1)), "each replaces the one before"),
        (repeated(64, |at| Some(at + 16)), "the newest sixteen"),
        (repeated(64, |at| Some(at / 16 * 16 + 15)), "those of sixteen at a time"),
        (repeated(128, |at| Some(at + at_random(at) as usize / 4)), "some of the newest sixteen"),
        (repeated(7, |_| None), "seven"),
    ] {
        assert!(!kinds(&clean).contains(&"growth"), "{why}");
    }
}

#[test]
fn what_stays_from_the_beginning_is_no_growth() {
    let mut trace = repeated(0, |_| None);
    (0..20).for_each(|weight| _ = trace.alloc(weight, 1000).on(LINE_7));
    (0..60).for_each(|_| _ = trace.alloc("other", 10).on(LINE_9).free("other"));
    assert!(!kinds(&trace).contains(&"growth"), "weights");
    let mut trace = Story::cpu();
    for weight in 0..20 {
        trace.alloc(weight, 1000).on(LINE_7).named("weight", Category::Parameter);
    }
    assert!(!kinds(&trace).contains(&"growth"), "parameters");
}

#[test]
fn what_has_hardly_grown_since_half_of_the_repetitions_is_no_growth() {
    let is_growth = |first: u64, second: u64| {
        let mut trace = Story::cpu();
        (0..40).for_each(|at| _ = trace.alloc(at, if at < 20 { first } else { second }).on(LINE_7));
        kinds(&trace).contains(&"growth")
    };
    assert!(is_growth(1000, 1000) && is_growth(100, 1000));
    assert!(!is_growth(1000, 100), "by a tenth");
}

#[test]
fn growth_is_that_of_the_loop_although_the_line_also_ran_before_it() {
    let mut trace = Story::cpu();
    (0..2).for_each(|at| _ = trace.at(at + 1).alloc(format!("before {at}"), 1000).on(LINE_7));
    for at in 1..=40 {
        trace.at(10 * at).enter("step").alloc(at, 1000).on(LINE_7).leave("step");
    }
    assert_eq!(found(&trace)[0].what, "memory accumulates: 40 of 40 scopes `step` left blocks that stay");
}

#[test]
fn one_long_statement_is_no_growth() {
    let of_calls = |calls: u32| {
        let mut trace = Story::cpu();
        let frames = vec![frame("net::main", "/home/u/net/src/main.rs", 9); 10];
        trace.stacks(stacks(frames, (0..10).map(|call| [call % calls])));
        (0..10).for_each(|at| _ = trace.alloc(at, 1000).on(StackId(at % calls + 1)));
        (0..10).for_each(|at| _ = trace.free(at));
        kinds(&trace)
    };
    assert_eq!([of_calls(1), of_calls(10)], [vec!["growth"], vec![]], "one call, ten times; ten calls");
}

#[test]
fn what_has_no_names_is_told_apart_by_its_call_stacks() {
    let what = "memory accumulates: 40 of 40 blocks allocated here stay (mean 1000 B)";
    for is_freed in [false, true] {
        let mut trace = Story::cpu();
        trace.stacks(stacks(vec![Frame::default(); 2], [[0], [1]]));
        for at in 0..40 {
            trace.alloc(at, 1000).on(StackId(1)).alloc("other", 1000).on(StackId(2)).free("other");
        }
        if is_freed {
            (0..40).for_each(|at| _ = trace.free(at));
            trace.alloc("other", 1000).on(StackId(2));
        }
        let finding = found(&trace);
        assert_eq!(finding.first().map(|finding| &*finding.what), Some(what), "{is_freed}: {finding:?}");
    }
}

#[test]
fn growth_is_at_the_line_that_holds_most_of_it() {
    let mut trace = Story::cpu();
    trace.alloc("large", 1500).on(LINE_9);
    for at in 0..20 {
        trace.alloc(2 * at, 1000).on(LINE_7).alloc(2 * at + 1, 900).on(LINE_9);
    }
    let finding = found(&trace);
    assert!(finding[0].line.as_ref().unwrap().contains("src/model.rs:7"), "{finding:?}");
    let what = "memory accumulates, here and at another line: 20 of 20 blocks allocated here stay (mean 1000 B)";
    assert_eq!(finding[0].what, what);
}

#[test]
fn weights_that_are_loaded_layer_by_layer_are_no_growth() {
    let mut trace = Story::cpu();
    for layer in 0..8 {
        let (name, at) = (format!("load layer {layer}"), 10 * layer as u64 + 1);
        trace.at(at).enter(&name).at(at + 1).alloc(layer, 1000).on(LINE_7).named("weight", Category::Parameter);
        trace.at(at + 3).leave(&name);
    }
    assert_eq!(kinds(&trace), [""; 0]);
}

#[test]
fn what_a_forward_pass_made_and_is_live_at_the_end_is_a_kept_graph() {
    let trained = |keeps: bool| {
        let mut trace = operator("relu");
        trace.alloc("weight", 1000).on(FORWARD).named("weight", Category::Parameter);
        trace.alloc("x", 4000).on(FORWARD).named("x", Category::Activation);
        trace.alloc("gradient", 1000).on(BACKWARD).named("gradient", Category::Gradient);
        if !keeps {
            trace.free("x");
        }
        trace
    };
    let finding = found(&trained(true));
    assert_eq!((finding[0].kind.word(), finding[0].cost), ("kept_graph", Cost::AtEnd(4000)));
    assert_eq!(kinds(&trained(false)), [""; 0], "its weights and their gradients");
}

/// A tensor of 1,000 bytes, and a block of this size that a function allocates for its own use.
fn beside_a_tensor(function: Frame, size: u64) -> SnapshotData {
    let mut trace = Story::cuda(0);
    trace.stacks(stacks(vec![function, frame("net::main", "/home/u/net/src/main.rs", 9)], [&[0, 1][..], &[1]]));
    trace.alloc("tensor", 1000).on(StackId(2)).alloc("its own", size).on(StackId(1));
    let mut data = trace.build();
    data.objects.push(LoadedObject { path: Some("/opt/lib/libcublas.so.13".into()), ..data.objects[0].clone() });
    data.stacks.addresses[0].object = Some(1);
    data
}

#[test]
fn what_a_library_takes_for_itself_is_its_own() {
    let found = |function: &str, size| {
        let data = beside_a_tensor(frame(function, "", 0), size);
        findings(&DeviceView::of(&data, &data.devices[0])).into_iter().next()
    };
    let finding = found("cublasCreate_v2", 5000).unwrap();
    assert_eq!((finding.kind.word(), finding.cost), ("one_library", Cost::OfPeak(5000)));
    assert!(finding.what.starts_with("libcublas.so.13 "), "{}", finding.what);
    assert!(finding.advice[0].starts_with("The workspace of each of its handles"), "{:?}", finding.advice);
    assert_eq!(found("cublasCreate_v2", 50), None, "it is small");
    assert_eq!(found("net::main", 5000), None, "it is the program's");
}

#[test]
fn an_allocator_of_a_framework_gives_its_pages_out_in_parts() {
    let found = |file: &str| {
        let data = beside_a_tensor(frame("alloc", &registry(file), 174), 5000);
        findings(&DeviceView::of(&data, &data.devices[0])).into_iter().next()
    };
    let finding = found("cubecl-cuda-0.10.0/src/compute/storage/gpu.rs").unwrap();
    assert_eq!((finding.kind.word(), finding.cost), ("given_out_in_parts", Cost::OfPeak(5000)));
    assert!(finding.what.starts_with("cubecl_cuda's"), "{}", finding.what);
    assert_eq!(found(TENSOR), None);
}

#[test]
fn memory_that_the_pool_gives_back_and_takes_again_costs_time() {
    let taken = |times: u64, growing_ns: u64| {
        let mut trace = Story::cuda(0);
        trace.pool(Pool::default()).lasting(1_000_000).alloc("x", 1000).on(LINE_9).free("x");
        (0..times).for_each(|_| _ = trace.segment_alloc(0x10_0000, 0x20_0000).segment_free(0x10_0000));
        trace.driver_took(CallTime { growing: times, growing_ns, ..CallTime::default() });
        trace
    };
    let finding = found(&taken(3, 20_000)).into_iter().next().unwrap();
    assert_eq!((finding.kind.word(), finding.cost), ("release_threshold", Cost::Time(20_000)));
    assert_eq!(kinds(&taken(3, 2_000)), [""; 0], "less than a hundredth of the time");
    assert_eq!(kinds(&taken(1, 20_000)), [""; 0], "it took it once");
}

#[test]
fn holes_that_nothing_fits_into_are_fragmentation() {
    let with_holes = |refused: u64| {
        let mut trace = Story::cuda(0);
        trace.segment_alloc(0x10_0000, 0x10_0000);
        for n in 0..8u64 {
            trace.alloc(n, 0x1_0000).address(0x10_0000 + n * 0x2_0000);
        }
        if refused > 0 {
            trace.refused(refused, Some(0));
        }
        trace
    };
    let found_with =
        |refused| found(&with_holes(refused)).into_iter().find(|finding| finding.kind.word() == "fragmentation");
    let refused = found_with(0x2_0000).unwrap();
    assert!(refused.why.contains("was refused"), "{}", refused.why);
    assert_eq!(refused.cost, Cost::Unusable(0x8_0000));
    let not_refused = found_with(0).unwrap();
    assert!(not_refused.why.contains("may still fill it"), "half of the segment");
    assert_eq!(not_refused.cost, Cost::Unusable(0x7_0000), "all but the largest");
    for (what, size) in [("full", 0x10_0000), ("one large hole", 0x1_0000)] {
        let mut trace = Story::cuda(0);
        trace.segment_alloc(0x10_0000, 0x10_0000).alloc("block", size).address(0x10_0000);
        assert_eq!(kinds(&trace), [""; 0], "{what}");
    }
}

/// The advice on a block that is allocated by stack 7 or 9, and last used by the other one or the same.
fn advice(alloc: StackId, last: StackId) -> String {
    found_beside("/home/u/net/src/load.rs", alloc, last).unwrap()
}

/// The same for a program that loads its weights in this file.
fn found_beside(weights: &str, alloc: StackId, last: StackId) -> Option<String> {
    let mut trace = Story::cuda(0);
    let stacks = stacks(
        vec![
            frame("net::forward", "/home/u/net/src/model.rs", 7),
            frame("net::forward", "/home/u/net/src/model.rs", 9),
            frame("net::train", "/home/u/net/src/main.rs", 3),
            frame("load", weights, 30),
        ],
        [&[0][..], &[1], &[2], &[3]],
    );
    trace.stacks(stacks).alloc("w", 100).on(alloc).alloc("y", 100).free("y").free("w");
    let mut data = trace.build();
    let used = BlockUse { operation: 1, after_alloc: 1, stack: last, ..BlockUse::default() };
    let uses = BlockUses::new(std::num::NonZeroU64::MIN, 0);
    data.devices[0].uses = vec![BlockUses { count: 1, first: Some(used), last: Some(used), ..uses }];
    let found = findings(&DeviceView::of(&data, &data.devices[0]));
    let found = found.iter().find(|finding| finding.kind.word() == "past_last_use")?;
    Some(found.advice.join(" "))
}

#[test]
fn what_to_write_is_said_as_far_as_the_lines_tell() {
    let [first, second, elsewhere] = [1, 2, 3].map(StackId);
    assert!(advice(first, second).contains("`drop(x)` on the next line"));
    let with_variables = found_beside(&registry("candle-nn-0.11.1/src/var_map.rs"), first, second);
    assert_eq!(with_variables, None, "a graph may hold the value");
    assert!(advice(first, elsewhere).contains("let that function take it by value"));
    assert!(advice(first, first).contains("split that line into its calls"));
    assert!(advice(first, StackId::NONE).starts_with("Drop the value after its last use, or end its scope"));
}

#[test]
fn the_table_of_the_documentation_has_a_row_for_each_kind() {
    let text = include_str!("../../../../docs/findings.md");
    let table = text.lines().skip_while(|line| !line.starts_with("| `kind` |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<_>>(), FindingKind::ALL.map(FindingKind::word).into());
}
