//! In-place forms, compared with a program that writes in place.

use super::tests::Planted;
use super::*;
use crate::recording::DeviceView;
use crate::report::findings;
use crate::snapshot::testing::{frame, registry, stacks};
use crate::snapshot::{GpuWork, KernelId};

/// Stacks of operators that the program calls: [`MATMUL`], [`OTHER`] and [`BACKWARD`].
const MATMUL: StackId = StackId(1);
const OTHER: StackId = StackId(2);
const BACKWARD: StackId = StackId(3);

fn program(name: &str) -> Planted {
    let tensor = registry("candle-core-0.11.1/src/tensor.rs");
    let own = |name: &str, line| frame(&format!("candle_core::tensor::Tensor::{name}"), &tensor, line);
    let pass = frame("backward", &registry("candle-core-0.11.1/src/backprop.rs"), 1);
    let [first, second] = [5, 9].map(|line| frame("net::main", "/home/u/net/src/main.rs", line));
    let frames = vec![own("matmul", 1), own(name, 2), first, second, pass];
    let mut program = Planted::new();
    program.story.stacks(stacks(frames, [&[0, 2][..], &[1, 3], &[0, 4, 3]]));
    program
}

fn alloc<'a>(program: &'a mut Planted, name: &str, size: u64, on: StackId) -> &'a mut Planted {
    program.alloc(name, size).story.on(on);
    program
}

/// A matrix product and an operator of this name and size on its result. `also` adds more to the program.
fn two_operators(name: &str, size: u64, also: impl FnOnce(&mut Planted)) -> Planted {
    let mut program = program(name);
    alloc(&mut program, "x", 100, MATMUL).uses(&["x"]);
    alloc(&mut program, "y", size, OTHER).uses(&["x", "y"]);
    also(&mut program);
    program.free("x");
    alloc(&mut program, "z", 30, MATMUL).uses(&["y", "z"]).free("z").free("y");
    program
}

fn rows(program: &Planted) -> Vec<InPlace> {
    let data = program.build();
    in_place(&DeviceView::of(&data, &data.devices[0]))
}

/// The peak of a program, counted step by step. Each block has a size, and is live from one step up to another.
fn counted(blocks: &[(u64, std::ops::Range<u32>)]) -> u64 {
    let at = |step| blocks.iter().filter(|(_, live)| live.contains(&step)).map(|(size, _)| size).sum();
    (0..100).map(at).max().unwrap()
}

#[test]
fn an_output_that_could_be_written_over_its_input_is_found_with_the_peak_of_that_program() {
    let found = two_operators("silu", 100, |_| ());
    assert_eq!(found.peak(), counted(&[(100, 0..2), (100, 1..4), (30, 2..3)]));
    let [found] = &rows(&found)[..] else { panic!("{:?}", rows(&found)) };
    assert_eq!((&*found.operator, found.operands, found.bytes, found.blocks), ("silu", 1, 100, 1));
    assert_eq!((found.peak_without, found.saves), (counted(&[(100, 0..4), (30, 2..3)]), 70));
    assert!(found.line.contains("main.rs:9") && found.input_line.contains("main.rs:5"), "{found:?}");
}

#[test]
fn other_operators_other_sizes_later_uses_and_other_moments_have_none() {
    assert_eq!(rows(&two_operators("matmul", 100, |_| ())), [], "no element-wise operator");
    assert_eq!(rows(&two_operators("silu", 99, |_| ())), [], "another size");
    assert_eq!(rows(&two_operators("silu", 100, |program| _ = program.uses(&["x"]))), [], "the input is used later");
    assert_eq!(rows(&two_operators("silu", 100, |program| _ = program.opaque())), [], "it may be used later");
    let mut elsewhere = two_operators("silu", 100, |_| ());
    alloc(&mut elsewhere, "large", 900, MATMUL).uses(&["large"]).free("large");
    assert_eq!(rows(&elsewhere), [], "the peak is elsewhere");
}

#[test]
fn an_input_that_lives_to_the_end_or_that_nothing_wrote_is_not_written_over() {
    let mut kept = program("silu");
    alloc(&mut kept, "x", 100, MATMUL).uses(&["x"]);
    alloc(&mut kept, "y", 100, OTHER).uses(&["x", "y"]).free("y");
    assert_eq!(rows(&kept), [], "it may be a weight");
    assert_eq!(rows(kept.free("x")).len(), 1, "it is none");
    let mut unwritten = program("silu");
    alloc(&mut unwritten, "x", 100, MATMUL);
    alloc(&mut unwritten, "y", 100, OTHER).uses(&["x", "y"]).free("x").free("y");
    assert_eq!(rows(&unwritten), [], "another output");
}

/// The graph keeps the operands that an operator read, and candle does not differentiate operators in place.
#[test]
fn an_input_that_lives_during_a_backward_pass_is_not_written_over() {
    let with = |by: StackId| {
        let pass = |program: &mut Planted| _ = alloc(program, "g", 50, by).uses(&["y", "g"]).free("g");
        let mut program = program("silu");
        alloc(&mut program, "x", 100, MATMUL).uses(&["x"]);
        alloc(&mut program, "y", 100, OTHER);
        alloc(&mut program, "t", 60, MATMUL).uses(&["x", "y", "t"]).free("t");
        pass(&mut program);
        program.free("x").free("y");
        rows(&program).len()
    };
    assert_eq!((with(BACKWARD), with(MATMUL)), (0, 1));
}

#[test]
fn the_launch_of_a_graph_is_not_one_operator() {
    let by = |kernel: &str| {
        let mut data = two_operators("silu", 100, |_| ()).build();
        data.gpu_work = Some(GpuWork { kernels: vec![kernel.into()], ..GpuWork::default() });
        assert!(data.devices[0].uses.iter().flat_map(|uses| uses.first).all(|used| used.kernel == KernelId(0)));
        in_place(&DeviceView::of(&data, &data.devices[0])).len()
    };
    assert_eq!((by("usilu_f32"), by("cuGraphLaunch")), (1, 0));
}

/// If the input is freed after its last use, it is gone at the peak, and overwriting it saves nothing more.
#[test]
fn what_other_advice_saves_is_not_counted_twice() {
    let mut held = program("silu");
    alloc(&mut held, "x", 100, MATMUL).uses(&["x"]);
    alloc(&mut held, "y", 100, OTHER).uses(&["x", "y"]);
    alloc(&mut held, "z", 300, MATMUL).uses(&["y", "z"]).free("z").free("y").free("x");
    let waste: Vec<_> = held.waste().iter().map(|row| (row.kind, row.peak_without)).collect();
    assert_eq!(waste, [(WasteKind::PastLastUse, 400)]);
    assert_eq!(rows(&held), []);
}

#[test]
fn a_sum_takes_one_of_its_operands_and_each_step_of_a_loop_its_own() {
    let mut sums = program("add");
    for _ in 0..3 {
        alloc(&mut sums, "w", 100, MATMUL).uses(&["w"]);
        alloc(&mut sums, "x", 100, MATMUL).uses(&["x"]);
        alloc(&mut sums, "sum", 100, OTHER).uses(&["w", "x", "sum"]).free("x").free("w");
        sums.uses(&["sum"]).free("sum");
    }
    let [found] = &rows(&sums)[..] else { panic!("{:?}", rows(&sums)) };
    let peak = counted(&[(100, 0..3), (100, 1..4)]);
    assert_eq!((found.operands, found.blocks, found.peak_without, found.saves), (2, 1, peak, 100));
}

#[test]
fn the_finding_says_what_to_write() {
    let said = |name: &str| {
        let data = two_operators(name, 100, |_| ()).build();
        let found = findings(&DeviceView::of(&data, &data.devices[0]));
        let found = found.iter().find(|finding| finding.kind.word() == "in_place").unwrap();
        assert!(found.line.as_ref().is_some_and(|line| line.contains("main.rs:9")), "{found:?}");
        format!("{}. {}. {}", found.what, found.certainty(), found.advice.join(" "))
    };
    let silu = said("silu");
    for part in ["100 B", "silu", "main.rs:5", "Possible", "`Tensor::inplace_op1` with an `InplaceOp1`", "130 bytes"] {
        assert!(silu.contains(part), "{part}: {silu}");
    }
    assert!(said("add").contains("`Tensor::inplace_op2` with an `InplaceOp2`"));
}
