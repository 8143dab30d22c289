use super::*;
use crate::recording::DeviceView;
use crate::snapshot::testing::{Story, frame, registry, stacks};
use crate::snapshot::{Frame, SnapshotData, StackId};

const ATEN: &str = "??";
const SCRIPT: &str = "/home/u/net.py";

fn candle(function: &str, file: &str, line: u32) -> Frame {
    frame(&format!("candle::Tensor::{function}"), &registry(&format!("candle-core-0.11.1/src/{file}")), line)
}

/// A linear layer, its backward pass, and an optimizer step, which allocates while the layer's result is live.
fn story(frames: Vec<Frame>, all: [&[u32]; 5], size: u64) -> SnapshotData {
    let mut story = Story::cuda(0);
    story.stacks(stacks(frames, all));
    let stack = |number: usize| StackId(number as u32);
    story.at(1_000).alloc("weights", 100).on(stack(1));
    story.at(2_000).alloc("result", size).on(stack(2));
    story.at(2_500).alloc("other", 30).on(stack(5));
    story.at(3_000).alloc("gradient", 400).on(stack(3));
    story.at(4_000).alloc("step", 50).on(stack(4)).free("step");
    story.at(5_000).free("result");
    story.build()
}

fn of_torch() -> SnapshotData {
    let optimizer = "/env/lib/python3.10/site-packages/torch/optim/adamw.py";
    let frames = vec![
        frame("at::_ops::randn::call", ATEN, 0),
        frame("at::_ops::addmm::call", ATEN, 0),
        frame("at::_ops::mm::call", ATEN, 0),
        frame("torch::autograd::generated::AddmmBackward0::apply", ATEN, 0),
        frame("at::_ops::mul_Tensor::call", ATEN, 0),
        frame("step", optimizer, 9),
        frame("at::_ops::logit::call", ATEN, 0),
        frame("main", SCRIPT, 3),
    ];
    story(frames, [&[0, 7], &[1, 7], &[2, 3], &[4, 5, 7], &[6, 7]], 1000)
}

fn of_candle() -> SnapshotData {
    let frames = vec![
        candle("randn", "tensor.rs", 300),
        candle("matmul", "tensor.rs", 1400),
        candle("add", "tensor.rs", 600),
        candle("backward", "backprop.rs", 460),
        frame("candle::optim::AdamW::step", &registry("candle-nn-0.11.1/src/optim.rs"), 160),
        candle("unfold", "tensor.rs", 2900),
        frame("net::main", "/home/u/net/src/main.rs", 3),
    ];
    story(frames, [&[0, 6], &[1, 6], &[2, 3, 6], &[2, 4, 6], &[5, 6]], 3000)
}

fn pairs(before: &SnapshotData, after: &SnapshotData) -> Option<OperatorPairs> {
    let [before, after] = [before, after].map(|data| DeviceView::of(data, &data.devices[0]));
    OperatorPairs::of(&before.at_peak(), &after.at_peak())
}

/// Label, bytes before and bytes after of the rows, sorted by label.
fn sums(diff: &Diff) -> Vec<(&str, u64, u64)> {
    let mut sums: Vec<_> = diff.rows.iter().map(|row| (&*row.label, row.before, row.after)).collect();
    sums.sort_unstable();
    sums
}

#[test]
fn operators_that_do_the_same_work_share_a_row() {
    let pairs = pairs(&of_torch(), &of_candle()).unwrap();
    let expected = [
        ("backward of matmul: mm ↔ add", 400, 400),
        ("matmul: addmm ↔ matmul", 1000, 3000),
        ("optimizer step: mul ↔ step/add", 50, 50),
        ("randn", 100, 100),
    ];
    assert_eq!(sums(&pairs.at_peak), expected);
    assert_eq!(sums(&pairs.unpaired), [("logit", 30, 0), ("unfold", 0, 30)]);
}

#[test]
fn the_rows_add_up_to_both_peaks() {
    let (mut torch, mut candle) = (of_torch(), of_candle());
    (torch.devices[0].peak.below_threshold, candle.devices[0].peak.below_threshold) = (70, 60);
    let pairs = pairs(&torch, &candle).unwrap();
    assert_eq!(pairs.at_peak.before + pairs.unpaired.before, torch.devices[0].peak.total());
    assert_eq!(pairs.at_peak.after + pairs.unpaired.after, candle.devices[0].peak.total());
}

#[test]
fn what_the_forward_pass_made_and_is_freed_after_the_backward_pass_began_is_kept() {
    let pairs = pairs(&of_torch(), &of_candle()).unwrap();
    assert_eq!(sums(&pairs.kept), [("matmul: addmm ↔ matmul", 1000, 3000)]);
    let expected = [("matmul: addmm ↔ matmul", 1000, 3000), ("optimizer step: mul ↔ step/add", 50, 50)];
    assert_eq!(sums(&pairs.temporaries), expected);
}

#[test]
fn either_recording_may_be_the_first() {
    let [one, other] = [pairs(&of_torch(), &of_candle()), pairs(&of_candle(), &of_torch())].map(Option::unwrap);
    assert_eq!((one.at_peak.before, one.at_peak.after), (other.at_peak.after, other.at_peak.before));
    assert!(sums(&other.at_peak).contains(&("matmul: matmul ↔ addmm", 3000, 1000)), "{other:?}");
}

#[test]
fn two_recordings_of_one_framework_are_not_paired() {
    assert_eq!(pairs(&of_torch(), &of_torch()), None);
    assert_eq!(pairs(&of_candle(), &of_candle()), None);
}

#[test]
fn a_sum_outside_of_all_nodes_is_the_backward_pass_of_a_broadcast() {
    let mut torch = of_torch();
    torch.stacks.frames[2].function = Some("at::_ops::sum_dim_IntList::call".into());
    torch.stacks.frames[3].function = Some("torch::autograd::Engine::evaluate_function".into());
    let mut candle = of_candle();
    // The arm of `broadcast`.
    candle.stacks.frames[3].line = std::num::NonZeroU32::new(490);
    let pairs = pairs(&torch, &candle).unwrap();
    assert!(sums(&pairs.at_peak).contains(&("backward of broadcast: sum ↔ add", 400, 400)), "{pairs:?}");
}

#[test]
fn a_multiplication_with_a_number_is_paired_with_what_the_other_program_calls() {
    let mut torch = of_torch();
    torch.stacks.frames[1].function = Some("at::_ops::div_Tensor::call".into());
    let mut candle = of_candle();
    candle.stacks.frames[1].function = Some("candle::Tensor::affine".into());
    let pairs = pairs(&torch, &candle).unwrap();
    assert!(sums(&pairs.at_peak).contains(&("div: div ↔ affine", 1000, 3000)), "{pairs:?}");
}
