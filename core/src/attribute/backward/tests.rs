//! Backward passes, described event by event. `tests/programs/backward` compares the pairings of whole networks with
//! candle itself.

mod uncertain;

use std::num::NonZeroU64;

use crate::analysis::{Key, checkpoints};
use crate::export::report_json;
use crate::recording::DeviceView;
use crate::report::{Report, ReportOptions};
use crate::snapshot::testing::{Story, frame, registry, stacks};
use crate::snapshot::{
    BlockUse, BlockUses, Category, Frame, GraphNode, GraphNodeKind, SnapshotData, StackId, Stacks, ThreadId,
};

/// Results of `matmul` and `relu` in the forward pass.
const MATMUL: StackId = StackId(1);
const RELU: StackId = StackId(2);
/// In the arm of `relu`: zeros, a mask, and the sum.
const RELU_ZEROS: StackId = StackId(3);
const RELU_MASK: StackId = StackId(4);
const RELU_SUM: StackId = StackId(5);
/// In the arm of `matmul`: the zeros and the sum of each operand.
const LEFT_ZEROS: StackId = StackId(6);
const LEFT_SUM: StackId = StackId(7);
const RIGHT_ZEROS: StackId = StackId(8);
const RIGHT_SUM: StackId = StackId(9);
/// In the arm of `transpose`.
const TURNED_ZEROS: StackId = StackId(10);
const TURNED_SUM: StackId = StackId(11);

/// Data of the program, and the gradient of the loss.
const DATA: StackId = StackId(12);
const LOSS: StackId = StackId(13);

fn of_candle(function: &str, file: &str, line: u32) -> Frame {
    frame(&format!("candle_core::{function}"), &registry(&format!("candle-core-0.11.1/src/{file}")), line)
}

/// The stacks, with the lines of candle 0.11.1.
fn table() -> Stacks {
    let mut frames = vec![
        of_candle("tensor::Tensor::matmul", "tensor.rs", 1),
        of_candle("tensor::Tensor::relu", "tensor.rs", 2),
        of_candle("tensor::Tensor::zeros_like", "tensor.rs", 3),
        of_candle("tensor::Tensor::ge", "tensor.rs", 4),
        of_candle("tensor::Tensor::add", "tensor.rs", 5),
        of_candle("backprop::GradStore::or_insert", "backprop.rs", 770),
        frame("net::forward", "/home/u/net/src/main.rs", 7),
        frame("net::train", "/home/u/net/src/main.rs", 20),
    ];
    let mut of_stacks: Vec<Vec<u32>> = vec![vec![0, 6], vec![1, 6]];
    let pass: [(&[u32], u32); 9] = [
        (&[2, 5], 637),
        (&[3], 638),
        (&[4], 639),
        (&[2, 5], 464),
        (&[4], 465),
        (&[2, 5], 468),
        (&[4], 469),
        (&[2, 5], 714),
        (&[4], 715),
    ];
    for (inner, line) in pass {
        frames.push(of_candle("tensor::Tensor::backward", "backprop.rs", line));
        of_stacks.push([inner, &[frames.len() as u32 - 1, 7]].concat());
    }
    frames.push(of_candle("tensor::Tensor::backward", "backprop.rs", 168));
    of_stacks.extend([vec![6], vec![2, frames.len() as u32 - 1, 7]]);
    stacks(frames, of_stacks)
}

fn told(story: impl FnOnce(&mut Story)) -> Story {
    let mut told = Story::cpu();
    told.stacks(table());
    story(&mut told);
    told
}

/// The recording with nodes that were handed over at 100 ns. Block numbers count from 1.
fn with_order(story: &Story, nodes: &[(GraphNodeKind, u64, u64)]) -> SnapshotData {
    let mut data = story.build();
    let thread = data.devices[0].records[0].thread;
    let node = |(place, (kind, bytes, block)): (u32, &(GraphNodeKind, u64, u64))| GraphNode {
        time_ns: 100,
        thread,
        place,
        kind: *kind,
        bytes: *bytes,
        block: NonZeroU64::new(*block),
    };
    data.devices[0].graph_nodes = (0..).zip(nodes).map(node).collect();
    data
}

/// For each of these blocks, the number of the forward call's block; 0 if it is unknown.
fn pairs(data: &SnapshotData, blocks: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let view = DeviceView::of(data, &data.devices[0]);
    let pair = |block| view.pairings().get(NonZeroU64::new(block)).map_or(0, |pairing| pairing.forward.get());
    blocks.map(pair).collect()
}

use GraphNodeKind::{Result, Variable, View};

/// `relu(matmul(input, turned))`: the product is block 1 of 2000 bytes, and its activation is block 2.
fn forward(story: &mut Story) -> &mut Story {
    story.at(10).alloc("product", 2000).on(MATMUL).at(20).alloc("active", 2000).on(RELU)
}

#[test]
fn each_step_belongs_to_its_node_and_a_view_to_the_call_that_used_it() {
    let story = told(|story| {
        forward(story).at(110);
        story.alloc("zeros 1", 2000).on(RELU_ZEROS).alloc("mask", 2000).on(RELU_MASK);
        story.alloc("sum 1", 2000).on(RELU_SUM).free("zeros 1").free("mask");
        story.alloc("zeros 2", 8000).on(RIGHT_ZEROS).alloc("sum 2", 8000).on(RIGHT_SUM).free("zeros 2").free("sum 1");
        story.alloc("zeros 3", 8000).on(TURNED_ZEROS).alloc("sum 3", 8000).on(TURNED_SUM).free("zeros 3").free("sum 2");
    });
    let nodes = [(Result, 2000, 2), (Result, 2000, 1), (View, 8000, 0), (Variable, 8000, 0)];
    assert_eq!(pairs(&with_order(&story, &nodes), 1..=9), [0, 0, 2, 2, 2, 1, 1, 1, 1]);
    let other = [(Result, 2000, 1), (Result, 2000, 2), (View, 8000, 0), (Variable, 8000, 0)];
    assert_eq!(pairs(&with_order(&story, &other), 1..=9), [0; 9], "the steps contradict this order");
    assert_eq!(pairs(&story.build(), 1..=9), [0; 9], "there is no order");
}

#[test]
fn rows_by_line_of_the_forward_pass_have_both_passes_of_a_line() {
    let story = told(|story| {
        forward(story.module("fc").enter("fc")).leave("fc").at(110);
        story.alloc("zeros", 8000).on(RIGHT_ZEROS).alloc("sum", 8000).on(RIGHT_SUM);
    });
    let rows = |data: &SnapshotData| {
        let rows = DeviceView::of(data, &data.devices[0]).by(Key::ForwardLine).rows.clone();
        rows.into_iter().map(|row| (row.label, row.bytes)).collect::<Vec<_>>()
    };
    let (forward, train) = ("src/main.rs:7 (net::forward)", "src/main.rs:20 (net::train)");
    let with_order = with_order(&story, &[(Result, 2000, 1), (Variable, 8000, 0)]);
    assert_eq!(rows(&with_order), [(forward.to_owned(), 20_000)]);
    let layers = DeviceView::of(&with_order, &with_order.devices[0]).by(Key::Layer).rows.clone();
    let layers: Vec<_> = layers.into_iter().map(|row| (row.label, row.bytes)).collect();
    assert_eq!(layers, [("fc".to_owned(), 20_000)]);
    assert_eq!(rows(&story.build()), [(train.to_owned(), 16_000), (forward.to_owned(), 4000)]);
    let holder = |data: &SnapshotData| crate::report::holders(&DeviceView::of(data, &data.devices[0]), 1)[0].0.clone();
    assert_eq!(
        [holder(&with_order), holder(&story.build())],
        [forward, train],
        "the page begins with what the answer names"
    );
}

/// There are no spans. Names are known of a parameter, of its gradient, and of a gradient whose call is not known.
#[test]
fn without_spans_a_named_gradient_says_the_layer_of_its_call() {
    let story = |module: bool| {
        told(|story| {
            story.at(1).alloc("weight", 8000).on(RIGHT_ZEROS).named("net.fc.weight f32[40, 50]", Category::Parameter);
            if module {
                story.module("fc").enter("fc");
            }
            forward(story).alloc("other", 700).on(MATMUL).at(110);
            story.alloc("zeros", 8000).on(RIGHT_ZEROS);
            story.alloc("sum", 8000).on(RIGHT_SUM).named("grad of net.fc.weight f32[40, 50]", Category::Gradient);
            story.at(200).thread(2).alloc("far", 900).on(RIGHT_SUM).named("grad of net.out.weight", Category::Gradient);
        })
    };
    let parts = |module| {
        let data = with_order(&story(module), &[(Result, 2000, 2), (Variable, 8000, 0)]);
        let device = DeviceView::of(&data, &data.devices[0]);
        let rows = device.at_peak().costs(Key::Layer);
        rows.into_iter().map(|cost| (cost.row.label, cost.parts.unwrap())).collect::<Vec<_>>()
    };
    // Parameters, gradients, optimizer, activations, backward pass, others.
    let (called, active) = ([8000, 8000, 0, 0, 8000, 2000], [0, 0, 0, 0, 0, 2700]);
    let out = ("net.out".to_owned(), [0, 900, 0, 0, 0, 0]);
    assert_eq!(parts(false), [("net.fc".to_owned(), called), ("(no layer)".to_owned(), active), out.clone()]);
    let all = [8000, 8000, 0, 0, 8000, 4700];
    assert_eq!(parts(true), [("fc".to_owned(), all), out]);
}

#[test]
fn rows_of_json_by_layer_say_what_their_bytes_are_for() {
    let story = told(|story| {
        forward(story).at(110).alloc("zeros", 8000).on(RIGHT_ZEROS).alloc("sum", 8000).on(RIGHT_SUM);
    });
    let data = with_order(&story, &[(Result, 2000, 1), (Variable, 8000, 0)]);
    let options = ReportOptions { sections: vec!["peak_by_forward_line".to_owned()], ..ReportOptions::default() };
    let report = Report::of(&data, &options).unwrap();
    let text = report_json(&report, Some((&data, &options))).unwrap();
    let parts = r#""parameters": 0, "gradients": 0, "optimizer_state": 0, "activations": 0, "backward_pass": 16000, "other": 4000"#;
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(parts), "{text}");
}

#[test]
fn a_parameter_that_two_modules_used_is_in_neither() {
    let story = told(|story| {
        story.at(1).alloc("weight", 8000).on(RIGHT_ZEROS).named("net.fc.weight", Category::Parameter);
        forward(story.module("a").enter("a")).leave("a");
        story.at(30).module("b").enter("b").alloc("other", 2000).on(MATMUL).leave("b").at(110);
        story.alloc("zeros 1", 8000).on(RIGHT_ZEROS).alloc("sum 1", 8000).on(RIGHT_SUM).free("zeros 1");
        story.alloc("zeros 2", 4000).on(LEFT_ZEROS).alloc("sum 2", 4000).on(LEFT_SUM);
        story.alloc("sum 3", 8000).on(RIGHT_SUM).named("grad of net.fc.weight", Category::Gradient).free("sum 1");
    });
    let data = with_order(&story, &[(Result, 2000, 4), (Result, 2000, 2), (Variable, 8000, 0)]);
    assert_eq!(pairs(&data, 5..=9), [4, 4, 2, 2, 2], "the last sum is of the product");
    let device = DeviceView::of(&data, &data.devices[0]);
    let rows = device.at_peak().costs(Key::Layer);
    let shared = rows.iter().find(|cost| cost.row.label == "net.fc").unwrap();
    assert_eq!(shared.parts, Some([8000, 8000, 0, 0, 0, 0]));
}

#[test]
fn of_two_nodes_that_fit_a_step_neither_is_said() {
    let story = told(|story| {
        forward(story).at(30).alloc("second", 500).on(MATMUL).at(110);
        story.alloc("zeros", 8000).on(RIGHT_ZEROS).alloc("sum", 8000).on(RIGHT_SUM);
    });
    let nodes = [(Result, 500, 3), (Result, 2000, 1), (Variable, 8000, 0)];
    assert_eq!(pairs(&with_order(&story, &nodes), 4..=5), [0, 0]);
    assert_eq!(pairs(&with_order(&story, &nodes[1..]), 4..=5), [1, 1]);
}

#[test]
fn two_steps_of_one_arm_are_told_apart() {
    let story = told(|story| {
        forward(story).at(30).alloc("again", 2000).on(RELU).at(110);
        for (zeros, mask, sum) in [("a", "b", "c"), ("d", "e", "f")] {
            story.alloc(zeros, 2000).on(RELU_ZEROS).alloc(mask, 2000).on(RELU_MASK).alloc(sum, 2000).on(RELU_SUM);
        }
    });
    let nodes = [(Result, 2000, 3), (Result, 2000, 2)];
    assert_eq!(pairs(&with_order(&story, &nodes), 4..=9), [3, 3, 3, 2, 2, 2]);
}

#[test]
fn a_view_that_two_calls_used_belongs_to_neither() {
    let story = told(|story| {
        forward(story).at(30).alloc("other", 2000).on(MATMUL).at(110);
        story.alloc("zeros 1", 8000).on(RIGHT_ZEROS).alloc("sum 1", 8000).on(RIGHT_SUM).free("zeros 1");
        // The first operand ends the step of the first product, because the second product begins with it.
        story.alloc("zeros 2", 4000).on(LEFT_ZEROS).alloc("sum 2", 4000).on(LEFT_SUM);
        story.alloc("sum 3", 8000).on(RIGHT_SUM).free("sum 1");
        story.alloc("zeros 4", 8000).on(TURNED_ZEROS).alloc("sum 4", 8000).on(TURNED_SUM).free("zeros 4").free("sum 3");
    });
    let nodes = [(Result, 2000, 3), (Result, 2000, 1), (View, 8000, 0), (Variable, 8000, 0)];
    assert_eq!(pairs(&with_order(&story, &nodes), 4..=10), [3, 3, 1, 1, 1, 0, 0]);
}

#[test]
fn a_pass_is_that_of_its_thread_until_it_is_over() {
    let story = told(|story| {
        forward(story).at(110).alloc("zeros", 8000).on(RIGHT_ZEROS).alloc("sum", 8000).on(RIGHT_SUM);
        story.at(200).alloc("late", 8000).on(RIGHT_ZEROS);
        story.at(110).thread(2).alloc("elsewhere", 8000).on(RIGHT_ZEROS);
    });
    let mut data = with_order(&story, &[(Result, 2000, 1), (Variable, 8000, 0)]);
    let last = data.devices[0].graph_nodes[0];
    data.devices[0].graph_nodes.push(GraphNode { time_ns: 150, place: 0, kind: GraphNodeKind::End, ..last });
    assert_eq!(pairs(&data, 3..=6), [1, 1, 0, 0]);
    data.devices[0].graph_nodes[0].thread = ThreadId(7);
    assert_eq!(pairs(&data, 3..=6), [0; 4], "the beginning of the order is another thread's");
}

/// The recording with uses: `made_of` lists the operands of each block.
fn with_uses(story: &Story, made_of: &[(u64, &[u64])]) -> SnapshotData {
    let mut data = story.build();
    let number = |block: u64| NonZeroU64::new(block).unwrap();
    let uses = |(block, operands): &(u64, &[u64])| {
        let mut uses = BlockUses { count: 1, first: Some(BlockUse::default()), ..BlockUses::new(number(*block), 0) };
        operands.iter().for_each(|operand| uses.operands.add(number(*block), number(*operand)));
        uses
    };
    data.devices[0].uses = made_of.iter().map(uses).collect();
    data
}

/// `relu(matmul(relu(matmul(input, first)), second))` with equal sizes: blocks 4 to 7. The backward pass follows.
fn two_layers() -> Story {
    told(|story| {
        story.alloc("input", 2000).on(DATA).alloc("first", 8000).on(DATA).alloc("second", 8000).on(DATA);
        for (product, active) in [("a", "b"), ("c", "d")] {
            story.alloc(product, 2000).on(MATMUL).alloc(active, 2000).on(RELU);
        }
        story.alloc("g", 2000).on(LOSS);
        for name in ["e", "f"] {
            let mut step = |what: &str, size, on| {
                story.alloc(format!("{name} {what}"), size).on(on);
            };
            step("zeros", 2000, RELU_ZEROS);
            step("mask", 2000, RELU_MASK);
            step("sum", 2000, RELU_SUM);
            step("left zeros", 2000, LEFT_ZEROS);
            step("left sum", 2000, LEFT_SUM);
            step("right zeros", 8000, RIGHT_ZEROS);
            step("right sum", 8000, RIGHT_SUM);
        }
        story.alloc("zeros", 8000).on(TURNED_ZEROS).alloc("sum", 8000).on(TURNED_SUM);
    })
}

/// Operands of all blocks of [`two_layers`].
const MADE_OF: [(u64, &[u64]); 24] = [
    (1, &[]),
    (2, &[]),
    (3, &[]),
    (4, &[1, 2]),
    (5, &[4]),
    (6, &[5, 3]),
    (7, &[6]),
    (8, &[]),
    (9, &[]),
    (10, &[6, 8]),
    (11, &[9, 10]),
    (12, &[]),
    (13, &[12, 3, 11]),
    (14, &[]),
    (15, &[14, 5, 11]),
    (16, &[]),
    (17, &[4, 13]),
    (18, &[16, 17]),
    (19, &[]),
    (20, &[19, 2, 18]),
    (21, &[]),
    (22, &[21, 1, 18]),
    (23, &[]),
    (24, &[23, 22]),
];

/// The calls of the blocks from 9 on.
const CALLS: [u64; 16] = [7, 7, 7, 6, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 4, 4];

#[test]
fn gradients_lead_from_step_to_step_where_uses_were_recorded() {
    assert_eq!(pairs(&with_uses(&two_layers(), &MADE_OF), 9..=24), CALLS, "the turned weight is that of its product");
}

#[test]
fn what_is_not_known_of_uses_is_not_made_up() {
    let without = |block: usize, operands: &'static [u64]| {
        let mut made_of = MADE_OF;
        made_of[block - 1].1 = operands;
        pairs(&with_uses(&two_layers(), &made_of), 9..=24)
    };
    let none = [0; 16];
    assert_eq!(without(13, &[12, 3, 5, 11]), CALLS, "the sum may be of both operands; the mask reads its operand");
    let first = [7, 7, 7, 6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(without(18, &[1, 17]), first, "it is no sum with a gradient");
    assert_eq!(without(15, &[14, 2, 11])[3..7], [0; 4], "the second product did not read the first weight");
    assert_eq!(without(10, &[8])[..3], none[..3], "no operand tells one relu from the other");
    let mut data = with_uses(&two_layers(), &MADE_OF);
    data.devices[0].uses.iter_mut().for_each(|uses| uses.opaque_first = true);
    assert_eq!(pairs(&data, 9..=24), none);
}

#[test]
fn of_two_live_calls_with_the_same_operands_neither_is_said() {
    let story = told(|story| {
        story.alloc("input", 2000).on(DATA).alloc("weight", 8000).on(DATA);
        story.alloc("once", 2000).on(MATMUL).alloc("twice", 2000).on(MATMUL).alloc("g", 2000).on(LOSS);
        story.alloc("zeros", 8000).on(RIGHT_ZEROS).alloc("sum", 8000).on(RIGHT_SUM);
    });
    let made_of: [(u64, &[u64]); 7] =
        [(1, &[]), (2, &[]), (3, &[1, 2]), (4, &[1, 2]), (5, &[]), (6, &[]), (7, &[6, 1, 5])];
    assert_eq!(pairs(&with_uses(&story, &made_of), 6..=7), [0, 0]);
    let mut freed = story;
    freed.free("once");
    assert_eq!(pairs(&with_uses(&freed, &made_of), 6..=7), [0, 0], "it was live");
}

/// A network of two products. The second one and its activation are in a module that keeps `extra` bytes. `weights` are
/// the sizes of both weights.
fn two_products(extra: u64, weights: [u64; 2]) -> SnapshotData {
    let story = told(|story| {
        story.at(10).alloc("input", 2000).on(MATMUL).module("b").enter("b").at(20).alloc("extra", extra).on(MATMUL);
        story.alloc("product", 2000).on(MATMUL).alloc("active", 2000).on(RELU).at(30).leave("b");
        story.at(110).alloc("of loss", 2000).on(LOSS);
        activation(story).free("of loss");
        second_product(story, weights[0]);
        first_product(story, weights[1]).free("of input").free("mask");
    });
    let results = [(Result, 2000, 4), (Result, 2000, 3), (Variable, weights[0], 0)];
    with_order(&story, &[&results[..], &[(Result, 2000, 1), (Variable, weights[1], 0)]].concat())
}

/// The activation's step of the pass. A gradient keeps the mask to the end of the pass.
fn activation(story: &mut Story) -> &mut Story {
    story.alloc("zeros 1", 2000).on(RELU_ZEROS).alloc("mask", 2000).on(RELU_MASK);
    story.alloc("of product", 2000).on(RELU_SUM).free("zeros 1")
}

fn second_product(story: &mut Story, weight: u64) -> &mut Story {
    story.alloc("zeros 2", 2000).on(LEFT_ZEROS).alloc("of input", 2000).on(LEFT_SUM).free("zeros 2");
    story.alloc("zeros 3", weight).on(RIGHT_ZEROS).alloc("sum 3", weight).on(RIGHT_SUM);
    story.named("grad of b.weight", Category::Gradient).free("zeros 3").free("of product")
}

fn first_product(story: &mut Story, weight: u64) -> &mut Story {
    story.alloc("zeros 4", weight).on(RIGHT_ZEROS).alloc("sum 4", weight).on(RIGHT_SUM);
    story.named("grad of a.weight", Category::Gradient).free("zeros 4")
}

/// The same with a checkpointed module, by definition.
fn two_products_by_hand(extra: u64, weights: [u64; 2]) -> u64 {
    let story = told(|story| {
        story.alloc("input", 2000).alloc("extra", extra).alloc("product", 2000).alloc("active", 2000);
        story.alloc("copy", 2000).free("extra").free("product").free("active").alloc("of loss", 2000);
        story.alloc("variable", 2000).alloc("extra", extra).alloc("product", 2000).alloc("active", 2000);
        story
            .alloc("scalar", 4)
            .alloc("one", 4)
            .alloc("zeros", 2000)
            .alloc("of active", 2000)
            .free("zeros")
            .free("one");
        activation(story).free("of active");
        second_product(story, weights[0]);
        story.free("scalar").free("active").free("product").free("extra").free("variable").free("mask");
        story.alloc("zeros", 2000).alloc("sum", 2000).free("zeros").free("of input").free("of loss");
        first_product(story, weights[1]).free("sum");
    });
    let data = story.build();
    data.devices[0].peak.bytes
}

#[test]
fn a_checkpointed_module_has_the_peak_of_the_program_by_hand() {
    let most = |extra, weights| {
        let data = two_products(extra, weights);
        let device = DeviceView::of(&data, &data.devices[0]);
        let found = checkpoints(&device);
        let by_hand = two_products_by_hand(extra, weights);
        let saves = device.peak.bytes.saturating_sub(by_hand);
        assert_eq!(found.first().map_or(0, |found| found.saves), saves, "{extra} {weights:?}");
        assert!(found.iter().all(|found| found.modules == "b" && found.is_exact && found.kept == extra + 2000));
        saves
    };
    // The peak is in the first product's step, when the module runs again, or in the second product's step.
    assert_eq!([most(9000, [8000, 70_000]), most(90_000, [8000, 9000]), most(9000, [80_000, 5000])], [13_000, 1996, 0]);
    for extra in [1, 10_000, 30_000, 100_000] {
        for weights in [[8000, 5000], [8000, 20_000], [20_000, 21_000], [20_000, 60_000]] {
            most(extra, weights);
        }
    }
}
