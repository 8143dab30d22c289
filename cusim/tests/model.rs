//! Property test: for random programs, the simulator's log equals that of a naive model.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/random.rs"]
mod random;

use std::collections::BTreeMap;

use memtrace_cusim::code::{INVALID_VALUE, OUT_OF_MEMORY};
use memtrace_cusim::faults::Faults;
use memtrace_cusim::history::{BlockKind, HistoryRecord, Op};
use memtrace_cusim::{AllocationRequest, Config, SimMachine};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate { kind: BlockKind, size: u64 },
    Free { which: usize },
    FreeTwice { which: usize },
    Synchronise,
}

/// The model: kind, size and taken bytes of live blocks, by address. It has no segments.
#[derive(Default)]
struct Model {
    live: BTreeMap<u64, (BlockKind, u64, u64)>,
}

const MEMORY: u64 = 256 << 20;

impl Model {
    fn used(&self, kind: BlockKind) -> u64 {
        self.live.values().filter(|(of, ..)| *of == kind).map(|(.., taken)| taken).sum()
    }

    fn taken(kind: BlockKind, size: u64) -> u64 {
        size.max(1).next_multiple_of(if kind == BlockKind::Pool { 512 } else { 256 })
    }

    fn allocate(&mut self, kind: BlockKind, size: u64, address: u64) {
        let taken = Self::taken(kind, size);
        let before = self.live.range(..=address).next_back();
        assert!(before.is_none_or(|(other, (.., taken))| other + taken <= address), "blocks overlap");
        let after = self.live.range(address..).next();
        assert!(after.is_none_or(|(other, _)| address + taken <= *other), "blocks overlap");
        self.live.insert(address, (kind, size, taken));
    }

    fn pick(&self, which: usize) -> Option<u64> {
        self.live.keys().nth(which % self.live.len().max(1)).copied()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![4 => Just(BlockKind::Pool), 1 => Just(BlockKind::Classic), 1 => Just(BlockKind::Managed)];
    let size = prop_oneof![1_u64..5000, 1_u64 << 10..40 << 20, 60_u64 << 20..300 << 20];
    prop_oneof![
        6 => (kind, size).prop_map(|(kind, size)| Step::Allocate { kind, size }),
        5 => any::<usize>().prop_map(|which| Step::Free { which }),
        1 => any::<usize>().prop_map(|which| Step::FreeTwice { which }),
        1 => Just(Step::Synchronise),
    ]
}

fn run(steps: &[Step], faults: &str) {
    let faults = Faults::parse(faults).unwrap();
    let mut machine = SimMachine::new(Config { memory: MEMORY, faults, ..Config::default() }).unwrap();
    let mut model = Model::default();
    for step in steps {
        take_step(&mut machine, &mut model, step);
        check_sums(&machine, &model);
    }
}

fn take_step(machine: &mut SimMachine, model: &mut Model, step: &Step) {
    match *step {
        Step::Allocate { kind, size } => allocate(machine, model, kind, size),
        Step::Free { which } => {
            let Some(address) = model.pick(which) else { return };
            machine.free(address, 7, 8).unwrap();
            let (kind, size, _) = model.live.remove(&address).unwrap();
            check_last(machine, model, HistoryRecord { op: Op::Free, kind, address, size, ..HistoryRecord::default() });
        }
        Step::FreeTwice { which } => {
            let Some(address) = model.pick(which) else { return };
            machine.free(address, 7, 8).unwrap();
            let (kind, ..) = model.live.remove(&address).unwrap();
            assert_eq!(machine.free(address, 7, 8), Err(INVALID_VALUE));
            assert_eq!(machine.counters(0, kind).used, model.used(kind));
        }
        Step::Synchronise => machine.synchronise(0),
    }
}

fn allocate(machine: &mut SimMachine, model: &mut Model, kind: BlockKind, size: u64) {
    let answer =
        machine.allocate(AllocationRequest { kind, size, context: 7, stream: 8, ..AllocationRequest::default() });
    let record = HistoryRecord { op: Op::Alloc, kind, size, ..HistoryRecord::default() };
    match answer {
        Ok(address) => {
            model.allocate(kind, size, address);
            check_last(machine, model, HistoryRecord { address, ..record });
        }
        Err(code) => {
            assert_eq!(code, OUT_OF_MEMORY);
            assert!(kind != BlockKind::Managed);
            assert!(machine.memory(0).0 < Model::taken(kind, size).next_multiple_of(2 << 20), "there was room");
            check_last(machine, model, HistoryRecord { result: code, ..record });
        }
    }
}

/// Checks that the last record is the expected one, with the model's counters.
fn check_last(machine: &SimMachine, model: &Model, expected: HistoryRecord) {
    let last = machine.history().records().last().unwrap();
    let HistoryRecord { number, thread, reserved, .. } = *last;
    let used = model.used(expected.kind);
    assert_eq!(*last, HistoryRecord { number, thread, reserved, used, context: 7, stream: 8, device: 0, ..expected });
    assert_eq!(number, machine.history().count());
    assert_eq!(reserved, machine.counters(0, expected.kind).reserved);
}

fn check_sums(machine: &SimMachine, model: &Model) {
    let mut reserved_on_device = 0;
    for kind in [BlockKind::Pool, BlockKind::Classic, BlockKind::Managed] {
        let counters = machine.counters(0, kind);
        assert_eq!(counters.used, model.used(kind));
        assert!(counters.used <= counters.reserved && counters.used_high <= counters.reserved_high);
        reserved_on_device += if kind == BlockKind::Managed { 0 } else { counters.reserved };
    }
    assert_eq!(machine.memory(0), (MEMORY - reserved_on_device, MEMORY));
}

proptest! {
    #![proptest_config(random::programs(200))]

    #[test]
    fn the_log_equals_a_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, "");
    }

    #[test]
    fn it_does_when_addresses_are_used_again_at_once(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, "reuse=immediate");
    }
}
