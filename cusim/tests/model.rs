//! Random programs: the simulator's log equals what thirty obvious lines say.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/random.rs"]
mod random;

use std::collections::BTreeMap;

use memtrace_cusim::code::{INVALID_VALUE, OUT_OF_MEMORY};
use memtrace_cusim::faults::Faults;
use memtrace_cusim::history::{Kind, Op, Record};
use memtrace_cusim::{Config, Machine, Request};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate { kind: Kind, size: u64 },
    Free { which: usize },
    FreeTwice { which: usize },
    Synchronise,
}

/// What is live, by address: kind, size, bytes taken. Nothing is known of segments.
#[derive(Default)]
struct Model {
    live: BTreeMap<u64, (Kind, u64, u64)>,
}

const MEMORY: u64 = 256 << 20;

impl Model {
    fn used(&self, kind: Kind) -> u64 {
        self.live.values().filter(|(of, ..)| *of == kind).map(|(.., taken)| taken).sum()
    }

    fn taken(kind: Kind, size: u64) -> u64 {
        size.max(1).next_multiple_of(if kind == Kind::Pool { 512 } else { 256 })
    }

    fn allocate(&mut self, kind: Kind, size: u64, address: u64) {
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
    let kind = prop_oneof![4 => Just(Kind::Pool), 1 => Just(Kind::Classic), 1 => Just(Kind::Managed)];
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
    let mut machine = Machine::new(Config { memory: MEMORY, faults, ..Config::default() }).unwrap();
    let mut model = Model::default();
    for step in steps {
        take_step(&mut machine, &mut model, step);
        check_sums(&machine, &model);
    }
}

fn take_step(machine: &mut Machine, model: &mut Model, step: &Step) {
    match *step {
        Step::Allocate { kind, size } => allocate(machine, model, kind, size),
        Step::Free { which } => {
            let Some(address) = model.pick(which) else { return };
            machine.free(address, 7, 8).unwrap();
            let (kind, size, _) = model.live.remove(&address).unwrap();
            check_last(machine, model, Record { op: Op::Free, kind, address, size, ..Record::default() });
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

fn allocate(machine: &mut Machine, model: &mut Model, kind: Kind, size: u64) {
    let answer = machine.allocate(Request { kind, size, context: 7, stream: 8, ..Request::default() });
    let record = Record { op: Op::Alloc, kind, size, ..Record::default() };
    match answer {
        Ok(address) => {
            model.allocate(kind, size, address);
            check_last(machine, model, Record { address, ..record });
        }
        Err(code) => {
            assert_eq!(code, OUT_OF_MEMORY);
            assert!(kind != Kind::Managed);
            assert!(machine.memory(0).0 < Model::taken(kind, size).next_multiple_of(2 << 20), "there was room");
            check_last(machine, model, Record { result: code, ..record });
        }
    }
}

/// The last record is the expected one, with the model's counters.
fn check_last(machine: &Machine, model: &Model, expected: Record) {
    let last = machine.history().records().last().unwrap();
    let Record { number, thread, reserved, .. } = *last;
    let used = model.used(expected.kind);
    assert_eq!(*last, Record { number, thread, reserved, used, context: 7, stream: 8, device: 0, ..expected });
    assert_eq!(number, machine.history().count());
    assert_eq!(reserved, machine.counters(0, expected.kind).reserved);
}

fn check_sums(machine: &Machine, model: &Model) {
    let mut reserved_on_device = 0;
    for kind in [Kind::Pool, Kind::Classic, Kind::Managed] {
        let counters = machine.counters(0, kind);
        assert_eq!(counters.used, model.used(kind));
        assert!(counters.used <= counters.reserved && counters.used_high <= counters.reserved_high);
        reserved_on_device += if kind == Kind::Managed { 0 } else { counters.reserved };
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
