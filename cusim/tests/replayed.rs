//! Property test: the core's model of the driver's pool, which `cargo memtrace replay` uses, is this simulator's. The core does not
//! depend on the simulator, so the rules are there twice.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/random.rs"]
mod random;

use memtrace_core::analysis::AllocatorModel;
use memtrace_cusim::history::BlockKind;
use memtrace_cusim::{AllocationRequest, Config, SimMachine};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Free(usize),
    Synchronise,
}

const MIB: u64 = 1 << 20;

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![0_u64..5000, 1_u64 << 10..40 * MIB, 30 * MIB..100 * MIB];
    prop_oneof![
        6 => size.prop_map(Step::Alloc),
        5 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Synchronise),
    ]
}

/// Takes the steps in both. The distance between the addresses of the two is that of their first blocks.
fn run(steps: &[Step], threshold: u64, memory: u64) {
    let mut machine = SimMachine::new(Config { memory, ..Config::default() }).unwrap();
    machine.set_release_threshold(0, threshold);
    let mut model = AllocatorModel::DriverPool { threshold }.build(Some(memory));
    let (mut live, mut distance): (Vec<(u64, u64)>, Option<u64>) = (Vec::new(), None);
    for step in steps {
        match *step {
            Step::Alloc(size) => {
                let request = AllocationRequest { kind: BlockKind::Pool, size, ..AllocationRequest::default() };
                let (simulated, modelled) = (machine.allocate(request).ok(), model.alloc(size, 0, memory));
                assert_eq!(simulated.is_some(), modelled.is_some(), "{step:?}");
                let Some(pair) = simulated.zip(modelled) else { continue };
                let apart = pair.0.wrapping_sub(pair.1);
                assert_eq!(*distance.get_or_insert(apart), apart, "{step:?}");
                live.push(pair);
            }
            Step::Free(which) if !live.is_empty() => {
                let (simulated, modelled) = live.swap_remove(which % live.len());
                machine.free(simulated, 0, 0).unwrap();
                model.free(modelled);
            }
            Step::Free(_) => {}
            Step::Synchronise => {
                machine.synchronise(0);
                model.synchronise();
            }
        }
        let counters = machine.counters(0, BlockKind::Pool);
        assert_eq!((counters.used, counters.reserved), (model.used(), model.reserved()), "{step:?}");
    }
}

proptest! {
    #![proptest_config(random::programs(128))]

    #[test]
    fn each_step_reserves_as_much_in_the_model_and_places_blocks_alike(
        steps in prop::collection::vec(step(), 0..120),
        threshold in prop_oneof![Just(0), Just(u64::MAX), 0..300 * MIB],
        memory in prop_oneof![Just(1 << 36), 64 * MIB..512 * MIB],
    ) {
        run(&steps, threshold, memory);
    }
}
