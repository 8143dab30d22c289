//! Graphs that keep blocks nobody needs, and recordings that only look like that.

use crate::recording::DeviceView;
use crate::report::findings::planned;
use crate::report::{Cost, Finding, findings};
use crate::snapshot::testing::{Story, frame, registry, stacks};
use crate::snapshot::{BlockUse, BlockUses, StackId};

/// The product and result of one statement, and the loss of another line.
const PRODUCT: StackId = StackId(1);
const RESULT: StackId = StackId(2);
const LOSS: StackId = StackId(3);
/// The backward pass of a tanh and of a product.
const OF_RESULT: StackId = StackId(4);
const OF_PRODUCT: StackId = StackId(5);
const VARIABLE: StackId = StackId(6);

fn story(weights: &str) -> Story {
    let tensor = registry("candle-core-0.11.1/src/tensor.rs");
    let own = |name: &str| frame(&format!("candle_core::tensor::Tensor::{name}"), &tensor, 700);
    let pass =
        |line| frame("candle_core::tensor::Tensor::backward", &registry("candle-core-0.11.1/src/backprop.rs"), line);
    let at = |line| frame("net::main", "/home/u/net/src/main.rs", line);
    let frames = vec![
        own("matmul"),
        own("tanh"),
        own("sqr"),
        own("add"),
        pass(548),
        pass(459),
        at(5),
        at(6),
        at(7),
        frame("load", weights, 30),
    ];
    let mut story = Story::cpu();
    story.stacks(stacks(frames, [&[0, 6][..], &[1, 6], &[2, 7], &[3, 4, 8], &[3, 5, 8], &[9, 8]]));
    story
}

fn variables() -> String {
    registry("candle-nn-0.11.1/src/var_map.rs")
}

fn found(story: &Story) -> Vec<Finding> {
    let data = story.build();
    let found = findings(&DeviceView::of(&data, &data.devices[0]));
    found
        .into_iter()
        .filter(|finding| ["kept_by_variables", "kept_loss", "kept_graph"].contains(&finding.kind.word()))
        .collect()
}

/// Four statements, each with a product and its result, which are kept to the end.
fn four(weights: &str, drops: impl Fn(&mut Story)) -> Story {
    let mut story = story(weights);
    story.alloc("weight", 2000).on(VARIABLE);
    for at in 0..4 {
        story.alloc(format!("product {at}"), 10_000).on(PRODUCT).alloc(format!("result {at}"), 8000).on(RESULT);
    }
    drops(&mut story);
    story
}

fn as_a_graph(story: &mut Story) {
    (0..4).for_each(|at| _ = story.free(format!("result {at}")).free(format!("product {at}")));
}

#[test]
fn what_a_statement_computed_on_its_way_is_kept_by_the_graph_of_its_result() {
    let found = found(&four(&variables(), as_a_graph));
    let [finding] = &found[..] else { panic!("{found:?}") };
    // At the peak, the last product is part of the running statement.
    assert_eq!((finding.kind.word(), finding.cost), ("kept_by_variables", Cost::OfPeak(30_000)));
    assert!(finding.advice.concat().contains("44,000 bytes"), "{:?}", finding.advice);
}

#[test]
fn values_of_the_program_are_not_kept_by_a_graph() {
    let in_pairs =
        |story: &mut Story| (0..4).for_each(|at| _ = story.free(format!("product {at}")).free(format!("result {at}")));
    for (clean, why) in [
        (four(&variables(), in_pairs), "a list of pairs is dropped from the front"),
        (four(&variables(), |_| ()), "who holds it is not known"),
        (four("/home/u/net/src/load.rs", as_a_graph), "no variables, no graph"),
    ] {
        assert_eq!(found(&clean), [], "{why}");
    }
}

/// Two networks used alternately. `keeps` says whether the first one's loss stays alive. `second` is the number of
/// nodes in the second one's backward pass.
fn in_turn(keeps: bool, second: usize) -> Story {
    let mut story = story(&variables());
    story.alloc("weight", 2000).on(VARIABLE);
    for turn in 0..4 {
        let (own, other) = (|what| format!("{what} {turn}"), |what| format!("{what} {}", turn - 1));
        story.alloc(own("product"), 10_000).on(PRODUCT).alloc(own("result"), 10_000).on(RESULT);
        story.alloc(own("loss"), 2000).on(LOSS);
        let nodes = if turn % 2 == 0 { 1 } else { second };
        for node in 0..nodes {
            let gradient = format!("gradient {turn} {node}");
            story
                .alloc(&gradient, 1500)
                .on(OF_RESULT)
                .free(&gradient)
                .alloc(&gradient, 1500)
                .on(OF_PRODUCT)
                .free(&gradient);
        }
        let mut drops = |of: &dyn Fn(&'static str) -> String| {
            story.free(of("loss")).free(of("result")).free(of("product"));
        };
        if !keeps || turn % 2 == 1 {
            drops(&own);
        }
        if keeps && turn % 2 == 1 {
            drops(&other);
        }
    }
    story
}

#[test]
fn the_graph_of_a_loss_is_not_needed_by_a_pass_of_fewer_nodes() {
    let kept = found(&in_turn(true, 1));
    let [finding] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((finding.kind.word(), finding.cost), ("kept_loss", Cost::OfPeak(20_000)));
    assert!(finding.advice[0].contains("src/main.rs:7"), "{:?}", finding.advice);
    assert_eq!(found(&in_turn(true, 2)), [], "the second pass has the nodes of both");
    assert_eq!(found(&in_turn(false, 1)), []);
}

#[test]
fn a_plan_names_the_backward_pass_whose_loss_is_to_be_dropped() {
    let data = in_turn(true, 1).build();
    let device = DeviceView::of(&data, &data.devices[0]);
    let plan = device.plan(device.peak.bytes - 20_000).unwrap();
    let [step] = &plan.steps[..] else { panic!("{plan:?}") };
    let finding = planned(&device, step);
    assert_eq!((finding.kind.word(), finding.cost), ("kept_loss", Cost::OfPeak(20_000)));
    assert!(finding.advice[0].contains("src/main.rs:7"), "{:?}", finding.advice);
}

#[test]
fn a_temporary_from_before_a_pass_that_is_live_at_the_end_is_in_a_kept_graph() {
    let mut story = story(&variables());
    story.alloc("weight", 2000).on(VARIABLE).alloc("product", 10_000).on(PRODUCT).alloc("result", 10_000).on(RESULT);
    assert_eq!(found(&story), [], "no backward pass yet");
    story.alloc("gradient", 1500).on(OF_RESULT);
    let kept = found(&story);
    assert_eq!(
        kept.iter().map(|kept| (kept.kind.word(), kept.cost)).collect::<Vec<_>>(),
        [("kept_graph", Cost::AtEnd(10_000))]
    );
}

/// With uses: a value whose last use is before or in the backward pass, and which is freed much later.
fn used_last_before_a_pass(on: StackId) -> Vec<Finding> {
    let mut story = story(&variables());
    story
        .alloc("value", 10_000)
        .on(on)
        .alloc("between", 100)
        .on(LOSS)
        .free("between")
        .alloc("gradient", 1500)
        .on(OF_RESULT)
        .free("gradient");
    story.alloc("next", 5000).on(LOSS).free("next").free("value");
    let mut data = story.build();
    let used = BlockUse { operation: 1, after_alloc: 1, stack: on, ..BlockUse::default() };
    let uses = BlockUses::new(std::num::NonZeroU64::MIN, 0);
    data.devices[0].uses = vec![BlockUses { count: 1, first: Some(used), last: Some(used), ..uses }];
    findings(&DeviceView::of(&data, &data.devices[0]))
        .into_iter()
        .filter(|finding| finding.kind.word() == "past_last_use")
        .collect()
}

#[test]
fn a_graph_frees_its_blocks_after_the_pass_and_not_after_their_last_use() {
    let found = used_last_before_a_pass(RESULT);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert!(
        finding.advice[0].contains("main.rs:7") && finding.advice[1].contains("`GradStore`"),
        "{:?}",
        finding.advice
    );
    assert!(
        finding.advice[2].contains("11,500 bytes"),
        "while the pass runs, the graph is needed: {:?}",
        finding.advice
    );
    assert_eq!(used_last_before_a_pass(OF_PRODUCT), [], "the program does not hold what a backward pass computes");
}
