//! Waste and the peak without it, compared with the program that does without.

use super::*;
use crate::snapshot::testing::{LINE_7, LINE_9, Story};
use crate::snapshot::{Device, GpuWork};

/// A program on a GPU: `alloc`, `free` and `use_` of blocks by name.
struct Planted {
    story: Story,
    uses: Vec<BlockUses>,
    numbers: HashMap<String, usize>,
    position: (u64, u64),
    operations: u64,
}

impl Planted {
    fn new() -> Self {
        let story = Story::cuda(0);
        Self { story, uses: Vec::new(), numbers: HashMap::new(), position: (0, 0), operations: 0 }
    }

    fn alloc(&mut self, name: &str, size: u64) -> &mut Self {
        self.story.alloc(name, size).on(if name.starts_with('w') { LINE_7 } else { LINE_9 });
        let seq = self.uses.len() as u64 + 1;
        self.uses.push(BlockUses::new(NonZeroU64::new(seq).unwrap(), self.operations));
        self.numbers.insert(name.to_owned(), self.uses.len() - 1);
        self.position = (seq, 0);
        self
    }

    fn free(&mut self, name: &str) -> &mut Self {
        self.story.free(name);
        self.uses[self.numbers[name]].freed_at = Some(self.operations);
        self.position.1 += 1;
        self
    }

    fn uses(&mut self, names: &[&str]) -> &mut Self {
        self.operations += 1;
        let (after_alloc, frees_after) = self.position;
        let used = BlockUse { operation: self.operations, after_alloc, frees_after, ..BlockUse::default() };
        for name in names {
            let uses = &mut self.uses[self.numbers[*name]];
            uses.first.get_or_insert(used);
            uses.last = Some(used);
            uses.count += 1;
        }
        self
    }

    fn opaque(&mut self) -> &mut Self {
        self.operations += 1;
        let live = self.uses.iter_mut().filter(|uses| uses.freed_at.is_none());
        live.for_each(|uses| uses.last_opaque = self.operations);
        self
    }

    fn build(&self) -> SnapshotData {
        let mut data = self.story.build();
        data.devices[0].uses = self.uses.clone();
        data.gpu_work = Some(GpuWork { kernels: vec!["add".into()], ..GpuWork::default() });
        data
    }

    fn waste(&self) -> Vec<Waste> {
        let data = self.build();
        assert_eq!(data.devices[0].device, Device::Cuda(0));
        waste(&data, &data.devices[0])
    }

    fn peak(&self) -> u64 {
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

/// Every step has the waste: dropping one step's alone would not help.
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
