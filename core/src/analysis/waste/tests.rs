//! Waste and the peak without it, compared with a program that does not have the waste.

use std::num::NonZeroU64;

use super::*;
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, frame, registry, stacks};
use crate::snapshot::{BlockIdle, BlockUse, BlockUses, Device, GpuWork, IdleTime, SnapshotData};

/// A program on a GPU: `alloc`, `free` and `use_` of blocks by name.
pub(super) struct Planted {
    pub(super) story: Story,
    pub(super) uses: Vec<BlockUses>,
    idle: Vec<BlockIdle>,
    numbers: HashMap<String, usize>,
    position: (u64, u64),
    operations: u64,
}

impl Planted {
    pub(super) fn new() -> Self {
        let story = Story::cuda(0);
        Self { story, uses: Vec::new(), idle: Vec::new(), numbers: HashMap::new(), position: (0, 0), operations: 0 }
    }

    pub(super) fn alloc(&mut self, name: &str, size: u64) -> &mut Self {
        self.story.alloc(name, size).on(if name.starts_with('w') { LINE_7 } else { LINE_9 });
        let seq = self.uses.len() as u64 + 1;
        self.uses.push(BlockUses::new(NonZeroU64::new(seq).unwrap(), self.operations));
        self.numbers.insert(name.to_owned(), self.uses.len() - 1);
        self.position = (seq, 0);
        self
    }

    pub(super) fn free(&mut self, name: &str) -> &mut Self {
        self.story.free(name);
        self.uses[self.numbers[name]].freed_at = Some(self.operations);
        self.position.1 += 1;
        self
    }

    pub(super) fn uses(&mut self, names: &[&str]) -> &mut Self {
        self.operations += 1;
        let (after_alloc, frees_after) = self.position;
        let used = BlockUse { operation: self.operations, after_alloc, frees_after, ..BlockUse::default() };
        for name in names {
            let uses = &mut self.uses[self.numbers[*name]];
            if let Some(last) = uses.last {
                let operations = self.operations - last.operation - 1;
                let (from_alloc, to_alloc) = (last.after_alloc, after_alloc);
                let time = IdleTime { operations, from_alloc, to_alloc, ..IdleTime::default() };
                self.idle.push(BlockIdle { seq: uses.seq, time });
                if uses.idle.is_none_or(|idle| idle.operations < operations) {
                    uses.idle = Some(time);
                }
            }
            uses.first.get_or_insert(used);
            uses.last = Some(used);
            uses.count += 1;
        }
        self
    }

    pub(super) fn opaque(&mut self) -> &mut Self {
        self.operations += 1;
        let live = self.uses.iter_mut().filter(|uses| uses.freed_at.is_none());
        live.for_each(|uses| uses.last_opaque = self.operations);
        self
    }

    pub(super) fn build(&self) -> SnapshotData {
        let mut data = self.story.build();
        data.devices[0].uses = self.uses.clone();
        data.devices[0].idle = self.idle.clone();
        data.devices[0].idle.sort_by_key(|idle| idle.seq);
        data.gpu_work = Some(GpuWork { kernels: vec!["add".into()], ..GpuWork::default() });
        data
    }

    pub(super) fn waste(&self) -> Vec<Waste> {
        let data = self.build();
        assert_eq!(data.devices[0].device, Device::Cuda(0));
        waste(&DeviceView::of(&data, &data.devices[0]))
    }

    pub(super) fn peak(&self) -> u64 {
        self.build().devices[0].peak.bytes
    }
}

#[test]
fn a_block_past_its_last_use_is_found_with_the_peak_of_the_program_that_drops_it() {
    let program = |drops: bool| {
        let mut program = Planted::new();
        program.alloc("x", 10).alloc("w", 100).uses(&["x", "w"]);
        if drops {
            program.free("w");
        }
        program.alloc("y", 70).uses(&["x", "y"]).alloc("z", 20).uses(&["y", "z"]).free("z").free("y");
        if !drops {
            program.free("w");
        }
        program.free("x");
        program
    };
    let [found] = &program(false).waste()[..] else { panic!("{:?}", program(false).waste()) };
    assert_eq!((found.kind, found.bytes, found.blocks), (WasteKind::PastLastUse, 100, 1));
    assert_eq!((found.saves, found.peak_without, found.kernel.as_str()), (90, program(true).peak(), "add"));
    assert!(found.line.contains("model.rs:7"), "{found:?}");
    assert_eq!(program(true).waste(), []);
}

#[test]
fn blocks_that_nothing_uses_and_early_ones_are_found() {
    let program = |cured: bool| {
        let mut program = Planted::new();
        program.alloc("x", 10).uses(&["x"]);
        if !cured {
            program.alloc("w never", 50).alloc("early", 30);
        }
        program.alloc("y", 100).uses(&["x", "y"]).free("y").free("x");
        if cured {
            program.alloc("early", 30);
        }
        program.uses(&["early"]).free("early");
        if !cured {
            program.free("w never");
        }
        program
    };
    let found: Vec<_> = program(false).waste().iter().map(|row| (row.kind, row.saves, row.peak_without)).collect();
    assert_eq!(found, [(WasteKind::NeverUsed, 50, 140), (WasteKind::Early, 30, program(true).peak())]);
    assert_eq!(program(true).waste(), []);
}

#[test]
fn what_an_opaque_operation_may_have_used_is_no_waste() {
    let mut program = Planted::new();
    program.alloc("w", 100).uses(&["w"]).alloc("v", 10).opaque().alloc("y", 100).uses(&["y"]);
    program.free("y").free("v").free("w");
    assert_eq!(program.waste(), []);
    let mut known = Planted::new();
    known.alloc("w", 100).opaque().uses(&["w"]).alloc("y", 100).uses(&["y"]).free("y").free("w");
    assert_eq!(known.waste()[0].peak_without, 100, "a use after it is the last one");
}

/// Every step has the waste, so removing it from one step would not help.
#[test]
fn all_blocks_of_a_site_are_moved_together() {
    let mut program = Planted::new();
    for _ in 0..3 {
        program.alloc("w", 100).uses(&["w"]).alloc("y", 60).uses(&["y"]).free("y").free("w");
    }
    let [found] = &program.waste()[..] else { panic!("{:?}", program.waste()) };
    assert_eq!((found.bytes, found.saves, found.peak_without), (100, 60, 100));
}

#[test]
fn a_block_that_lives_to_the_end_may_be_used_later() {
    let mut program = Planted::new();
    program.alloc("w", 100).uses(&["w"]).alloc("y", 60).uses(&["y"]).free("y");
    assert_eq!(program.waste(), []);
}

/// A program that leaves a value idle while something large is computed. With `moved`, the value is on the host
/// meanwhile.
fn idle_program(operations: usize, moved: bool) -> Planted {
    let mut program = Planted::new();
    program.alloc("w", 100).uses(&["w"]);
    if moved {
        program.free("w");
    }
    program.alloc("y", 70);
    (0..operations).for_each(|_| _ = program.uses(&["y"]));
    program.free("y").alloc("z", 20);
    if moved {
        program.alloc("w", 100);
    }
    program.uses(&["w", "z"]).free("z").free("w");
    program
}

fn idle_rows(program: &Planted) -> Vec<IdleMemory> {
    let data = program.build();
    idle_memory(&DeviceView::of(&data, &data.devices[0]))
}

#[test]
fn idle_blocks_at_the_peak_are_found_with_the_peak_of_the_program_that_moves_them() {
    let program = idle_program(20, false);
    let [found] = &idle_rows(&program)[..] else { panic!("{:?}", idle_rows(&program)) };
    assert_eq!((found.bytes, found.blocks, found.operations), (100, 1, 20));
    assert_eq!((found.peak_without, found.saves), (idle_program(20, true).peak(), 50));
    assert_eq!(found.transfer_ns(), 200 * 1_000_000_000 / IdleMemory::HOST_LINK);
    assert_eq!(program.waste(), [], "it is used again");
}

#[test]
fn short_gaps_and_gaps_elsewhere_are_not_idle_memory() {
    assert_eq!(idle_rows(&idle_program(15, false)), [], "a short gap");
    let mut later = idle_program(20, false);
    later.alloc("large", 900).uses(&["large"]).free("large");
    assert_eq!(idle_rows(&later), [], "the peak is elsewhere");
    let mut opaque = idle_program(20, false);
    opaque.uses[0].escaped = true;
    assert_eq!(idle_rows(&opaque), [], "its uses are not known");
}

/// Moving either block lowers the peak to that of another moment.
#[test]
fn of_idle_blocks_that_save_the_same_those_with_most_bytes_times_time_come_first() {
    let first = |idle_ns: [u64; 2]| {
        let mut program = Planted::new();
        program.alloc("w", 100).alloc("v", 60).uses(&["w", "v"]).alloc("y", 70);
        (0..20).for_each(|_| _ = program.uses(&["y"]));
        program.free("y").alloc("z", 20).uses(&["w", "v", "z"]).free("z").free("v").free("w");
        for idle in program.idle.iter_mut().filter(|idle| idle.time.operations == 20) {
            idle.time.to_ns = idle_ns[idle.seq.get() as usize - 1];
        }
        let rows = idle_rows(&program);
        assert_eq!((rows.len(), rows[0].saves), (1, 50), "{rows:?}");
        rows[0].bytes
    };
    assert_eq!([first([10, 10]), first([10, 20])], [100, 60]);
}

#[test]
fn idle_times_that_overlap_as_nobody_records_them_count_once() {
    let program = idle_program(20, false);
    let mut damaged = idle_program(20, false);
    damaged.idle = damaged.idle.iter().flat_map(|idle| [*idle; 3]).collect();
    assert_eq!(idle_rows(&damaged), idle_rows(&program));
}

/// An operator that makes a matrix from a row, and a result. `matrix` and `result` are their sizes.
fn operator(matrix: u64, result: u64, reads_known: bool) -> Option<OperatorTemporaries> {
    let tensor = registry("candle-core-0.11.1/src/tensor.rs");
    let own = |name: &str, line| frame(&format!("candle_core::tensor::Tensor::{name}"), &tensor, line);
    let frames =
        vec![own("to_dtype", 2), own("cumsum", 1), own("rand", 3), frame("net::main", "/home/u/net/src/main.rs", 9)];
    let mut program = Planted::new();
    program.story.stacks(stacks(frames, [&[0, 1, 3][..], &[1, 3], &[2, 3]]));
    let [inner, outer, made] = [1, 2, 3].map(StackId);
    let mut alloc = |name: &str, size, on| {
        program.alloc(name, size).story.on(on);
    };
    alloc("x", 100, made);
    alloc("other", 300, made);
    program.uses(&["other"]);
    program.alloc("matrix", matrix).story.on(inner);
    program.uses(&["matrix"]).alloc("sums", result).story.on(outer);
    program.uses(&["x", "matrix", "sums"]).free("matrix").uses(&["sums"]).free("sums").free("x").free("other");
    let mut data = program.build();
    if !reads_known {
        data.devices[0].uses.clear();
    }
    operator_temporaries(&DeviceView::of(&data, &data.devices[0]))
}

#[test]
fn temporaries_many_times_the_inputs_and_outputs_are_found_with_and_without_uses() {
    let found = operator(4000, 100, true).unwrap();
    assert_eq!((&*found.operator, found.bytes, found.blocks), ("cumsum", 4000, 1));
    assert_eq!((found.inputs, found.outputs, found.are_inputs_known, found.times()), (100, 100, true, 20));
    assert_eq!((found.saves, found.peak_without), (3750, 750), "a sixteenth of the matrix is left");
    let found = operator(4000, 100, false).unwrap();
    assert_eq!((found.inputs, found.are_inputs_known, found.times()), (300, false, 10), "the largest block");
}

#[test]
fn temporaries_like_the_inputs_and_outputs_are_not_reported() {
    assert_eq!(operator(700, 100, true), None, "3.5 times");
    assert!(operator(800, 100, true).is_some(), "4 times");
    assert_eq!(operator(800, 101, true), None, "of both");
    assert_eq!(operator(800, 100, false), None, "the operator may read the other block");
}
