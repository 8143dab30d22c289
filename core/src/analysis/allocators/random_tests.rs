//! Random sequences, replayed by each model and by its definition: the addresses and the reserved bytes must be equal
//! after each step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::naive::{NaivePool, NaiveTorch};
use super::{Allocator, AllocatorModel, PyTorchSettings};

#[derive(Clone, Debug)]
enum Step {
    Alloc { size: u64, stream: u32 },
    Free { which: usize },
    Synchronise,
}

const MIB: u64 = 1 << 20;

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        0u64..3000,
        1u64..2 * MIB,
        MIB..12 * MIB,
        9 * MIB..60 * MIB,
        (0u32..27).prop_map(|power| 1 << power),
    ];
    prop_oneof![
        6 => (size, 0u32..2).prop_map(|(size, stream)| Step::Alloc { size, stream }),
        5 => any::<usize>().prop_map(|which| Step::Free { which }),
        1 => Just(Step::Synchronise),
    ]
}

/// A test configuration with `number` cases, times MEMTRACE_CASES.
fn programs(number: u32) -> ProptestConfig {
    let times = std::env::var("MEMTRACE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    ProptestConfig { cases: number * times, failure_persistence: None, ..ProptestConfig::default() }
}

/// The result of an alloc, and the reserved bytes after it.
type Seen = (Option<u64>, u64);

trait Naive {
    fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64>;
    fn free(&mut self, address: u64);
    fn synchronise(&mut self);
    fn reserved(&self) -> u64;
}

impl Naive for NaivePool {
    fn alloc(&mut self, size: u64, _: u32, limit: u64) -> Option<u64> {
        Self::alloc(self, size, limit)
    }
    fn free(&mut self, address: u64) {
        Self::free(self, address);
    }
    fn synchronise(&mut self) {
        self.shrink(self.threshold);
    }
    fn reserved(&self) -> u64 {
        Self::reserved(self)
    }
}

impl Naive for NaiveTorch {
    fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64> {
        Self::alloc(self, size, stream, limit)
    }
    fn free(&mut self, address: u64) {
        Self::free(self, address);
    }
    fn synchronise(&mut self) {}
    fn reserved(&self) -> u64 {
        Self::reserved(self)
    }
}

fn compare(model: AllocatorModel, naive: &mut dyn Naive, steps: &[Step], limit: u64) {
    let mut allocator = model.build(None);
    // Sizes of live blocks by address.
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for step in steps {
        let address = match *step {
            Step::Alloc { size, stream } => {
                let found = (allocator.alloc(size, stream, limit), naive.alloc(size, stream, limit));
                assert_eq!(found.0, found.1, "{model} {step:?}");
                found.0.into_iter().for_each(|address| no_overlap(&mut live, address, size));
                found.0
            }
            Step::Free { which } => {
                let Some(address) = live.keys().nth(which % live.len().max(1)).copied() else { continue };
                live.remove(&address);
                allocator.free(address);
                naive.free(address);
                None
            }
            Step::Synchronise => {
                allocator.synchronise();
                naive.synchronise();
                None
            }
        };
        let seen: Seen = (address, allocator.reserved());
        assert_eq!(seen, (address, naive.reserved()), "{model} {step:?}");
        check_sums(&*allocator, &live, limit);
    }
}

fn no_overlap(live: &mut BTreeMap<u64, u64>, address: u64, size: u64) {
    let before = live.range(..=address).next_back();
    assert!(before.is_none_or(|(other, length)| other + length.max(&1) <= address), "blocks overlap");
    let after = live.range(address..).next();
    assert!(after.is_none_or(|(other, _)| address + size <= *other), "blocks overlap");
    live.insert(address, size);
}

fn check_sums(allocator: &dyn Allocator, live: &BTreeMap<u64, u64>, limit: u64) {
    let requested: u64 = live.values().sum();
    assert!(requested <= allocator.used() && allocator.used() <= allocator.reserved() && allocator.reserved() <= limit);
    assert!(allocator.largest_gap() <= allocator.reserved() - allocator.used());
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1 << 40), 40 * MIB..400 * MIB]
}

proptest! {
    #![proptest_config(programs(200))]

    #[test]
    fn the_drivers_pool_is_that_of_its_definition(
        steps in prop::collection::vec(step(), 0..120),
        threshold in prop_oneof![Just(0), Just(u64::MAX), 0..300 * MIB],
        limit in limit(),
    ) {
        compare(AllocatorModel::DriverPool { threshold }, &mut NaivePool::new(threshold), &steps, limit);
    }

    #[test]
    fn pytorchs_allocator_is_that_of_its_definition(
        steps in prop::collection::vec(step(), 0..120),
        (expandable, max_split, roundup) in (
            any::<bool>(),
            prop_oneof![Just(None), (21 * MIB..80 * MIB).prop_map(Some)],
            prop_oneof![Just(0), (1u32..6).prop_map(|power| 1u64 << power)],
        ),
        limit in limit(),
    ) {
        // Only whole segments are oversize. Expandable segments are not whole segments.
        let max_split = max_split.filter(|_| !expandable);
        let model = AllocatorModel::PyTorch(PyTorchSettings { expandable, max_split, roundup });
        compare(model, &mut NaiveTorch::new(expandable, max_split, roundup), &steps, limit);
    }
}
