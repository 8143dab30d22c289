//! Compares the ledger with a naive oracle that keeps everything and recomputes each sum.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::time::Instant;

use memtrace_core::snapshot::{Block, ContextId, DeviceSnapshot, MemoryKind, Replay, Sampling, StackId, Weight};
use proptest::prelude::*;

use super::*;
use crate::record::CONTEXTS;
use crate::record::event_site::EventSite;

#[derive(Clone, Debug)]
enum LedgerStep {
    Alloc {
        address: u64,
        size: u64,
        thread: u32,
    },
    Free {
        address: u64,
    },
    FreeUnknown {
        size: u64,
    },
    /// Live bytes in small blocks that the sample left out.
    LeftOut {
        bytes: u64,
    },
    Enter {
        name: usize,
        thread: u32,
    },
    /// Closes one of the open scopes, not always the innermost.
    Exit {
        which: usize,
    },
    ResetPeak,
}

const NAMES: [&str; 3] = ["forward", "backward", "step"];
const BASE: u64 = 10_000;
/// The part of `BASE` in small blocks.
const SMALL_BEFORE: u64 = 3_000;

fn steps() -> impl Strategy<Value = Vec<LedgerStep>> {
    let step = prop_oneof![
        6 => (0..24u64, 0..1000u64, 0..3u32).prop_map(|(address, size, thread)| LedgerStep::Alloc { address, size, thread }),
        5 => (0..24u64).prop_map(|address| LedgerStep::Free { address }),
        1 => (1..100u64).prop_map(|size| LedgerStep::FreeUnknown { size }),
        2 => (0..3 * SMALL_BEFORE).prop_map(|bytes| LedgerStep::LeftOut { bytes }),
        2 => (0..NAMES.len(), 0..3u32).prop_map(|(name, thread)| LedgerStep::Enter { name, thread }),
        2 => (0..8usize).prop_map(|which| LedgerStep::Exit { which }),
        1 => Just(LedgerStep::ResetPeak),
    ];
    prop::collection::vec(step, 0..160)
}

fn samplings() -> impl Strategy<Value = Sampling> {
    prop::sample::select(vec![Sampling::default(), Sampling::every(256)])
}

#[derive(Default)]
struct Oracle {
    sampling: Sampling,
    live: BTreeMap<u64, Block>,
    unknown_freed: u64,
    /// Bytes in small blocks that the sample left out.
    left_out: u64,
    peak: u64,
    at_peak: Vec<Block>,
    stat_peak: u64,
    open: Vec<(u64, ContextId, u32, u64)>,
    own_peak: HashMap<ContextId, u64>,
    total_peak: HashMap<ContextId, u64>,
    allocations: HashMap<ContextId, u64>,
    calls: HashMap<ContextId, u64>,
    seq: u64,
}

impl Oracle {
    fn total(&self) -> u64 {
        // Counted totals do not depend on whether a block is in the sample.
        let before =
            if self.sampling.is_on() { self.left_out + self.large_before() } else { BASE - self.unknown_freed };
        before + self.live.values().map(|block| block.size).sum::<u64>()
    }

    fn large_before(&self) -> u64 {
        BASE - SMALL_BEFORE - self.unknown_freed
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.live.values().copied().collect();
        blocks.sort_by_key(|b| b.seq);
        blocks
    }

    fn open_scopes_see(&mut self) {
        let total = self.total().min(self.peak);
        self.open.iter_mut().for_each(|scope| scope.3 = scope.3.max(total));
    }

    /// Recomputes everything after a step.
    fn look(&mut self, step: &LedgerStep) {
        let total = self.total();
        if matches!(step, LedgerStep::Alloc { .. }) {
            if total > self.peak {
                (self.peak, self.at_peak) = (total, self.blocks());
            }
            self.stat_peak = self.stat_peak.max(total);
        }
        // The ledger does not notice the allocation of a left-out block.
        if matches!(step, LedgerStep::Alloc { .. } | LedgerStep::Enter { .. }) {
            self.open_scopes_see();
        }
        let mut held: HashMap<ContextId, u64> = HashMap::new();
        for block in self.live.values() {
            let mut at = block.context;
            while at != ContextId::ROOT {
                *held.entry(at).or_default() += self.sampling.bytes(block.size);
                at = CONTEXTS.parent(at);
            }
        }
        for (context, bytes) in held {
            let peak = self.own_peak.entry(context).or_default();
            *peak = (*peak).max(bytes);
        }
    }
}

fn run(steps: &[LedgerStep], max_entries: usize, sampling: Sampling) -> (Oracle, LedgerCopy) {
    let (peak, stat_peak, left_out) = (BASE, BASE, SMALL_BEFORE);
    let mut oracle = Oracle { sampling, peak, stat_peak, left_out, ..Oracle::default() };
    outside::set((SMALL_BEFORE, BASE - SMALL_BEFORE));
    let outside = Some(outside::ask as AskOutside);
    let options = LedgerOptions { max_entries, sampling, outside, stacks_in_log: true, ..LedgerOptions::default() };
    let mut ledger = Ledger::new(options, Instant::now());
    ledger.take_initial_counts();
    let mut instance = 0;
    for step in steps {
        apply(step, &mut oracle, &mut ledger, &mut instance);
        oracle.look(step);
        assert_eq!(ledger.stats(BASE).allocated_bytes.current, oracle.total());
        assert_eq!(ledger.stats(BASE).allocated_bytes.peak, oracle.stat_peak.max(oracle.total()));
    }
    (oracle, ledger.copy(BASE))
}

/// Bytes outside the ledger under test, in small and in large blocks.
mod outside {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn set(bytes: (u64, u64)) {
        BYTES.set(bytes);
    }

    pub(super) fn ask(_: u64, _: u64) -> (u64, u64) {
        BYTES.get()
    }
}

fn apply(step: &LedgerStep, oracle: &mut Oracle, ledger: &mut Ledger, instance: &mut u64) {
    match *step {
        LedgerStep::Alloc { address, size, thread } => {
            let scope = oracle.open.iter().rev().find(|scope| scope.2 == thread);
            let context = scope.map_or(ContextId::ROOT, |scope| scope.1);
            let site = EventSite {
                stack: StackId(address as u32 + 1),
                context,
                thread: ThreadId(thread),
                ..EventSite::default()
            };
            // The free of the previous block at this address was missed.
            oracle.live.remove(&address);
            assert!(ledger.alloc(address, size, site));
            let mut at = context;
            while at != ContextId::ROOT {
                *oracle.allocations.entry(at).or_default() += oracle.sampling.parts(size);
                at = CONTEXTS.parent(at);
            }
            oracle.seq += 1;
            let (seq, stack) = (NonZeroU64::new(oracle.seq), site.stack);
            let thread = ThreadId(thread);
            oracle.live.insert(
                address,
                Block { address, size, seq, time_ns: 0, stack, context, thread, stream: 0, memory: MemoryKind::Heap },
            );
        }
        LedgerStep::Free { address } => {
            let block = ledger.free(address, EventSite::default());
            assert_eq!(block.map(|held| untimed(held.block())), oracle.live.remove(&address));
        }
        LedgerStep::FreeUnknown { size } if size <= oracle.large_before() => {
            ledger.free_unknown(99, size, EventSite::default());
            oracle.unknown_freed += size;
            outside::set((oracle.left_out, oracle.large_before()));
        }
        LedgerStep::FreeUnknown { .. } => {}
        LedgerStep::LeftOut { bytes } => {
            oracle.left_out = bytes;
            outside::set((bytes, oracle.large_before()));
        }
        LedgerStep::Enter { name, thread } => {
            let outer = oracle.open.iter().rev().find(|scope| scope.2 == thread);
            let context = CONTEXTS.intern(outer.map_or(ContextId::ROOT, |scope| scope.1), NAMES[name], false);
            *instance += 1;
            ledger.enter_scope(*instance, context, ThreadId(thread));
            oracle.open.push((*instance, context, thread, 0));
            *oracle.calls.entry(context).or_default() += 1;
        }
        LedgerStep::Exit { which } if which < oracle.open.len() => {
            let (instance, context, thread, largest) = oracle.open.remove(which);
            ledger.exit_scope(instance, context, ThreadId(thread));
            oracle.open_scopes_see();
            let peak = oracle.total_peak.entry(context).or_default();
            *peak = (*peak).max(largest);
        }
        LedgerStep::Exit { .. } => {}
        LedgerStep::ResetPeak => {
            ledger.reset_peak();
            oracle.stat_peak = oracle.total();
        }
    }
}

fn untimed(block: Block) -> Block {
    Block { time_ns: 0, ..block }
}

fn all_untimed(blocks: &[Block]) -> Vec<Block> {
    blocks.iter().copied().map(untimed).collect()
}

fn as_device(copy: &LedgerCopy, sampling: Sampling) -> DeviceSnapshot {
    let mut device = DeviceSnapshot::default();
    device.sampling = sampling;
    device.records.clone_from(&copy.records);
    device.overwritten = copy.overwritten;
    device.live.clone_from(&copy.live);
    device.not_recorded = copy.not_recorded;
    device.peak.clone_from(&copy.peak);
    device.stats = copy.stats;
    device.scopes.clone_from(&copy.scopes);
    device.marks.clone_from(&copy.marks);
    device.names.clone_from(&copy.names);
    device.lost_names = copy.lost_names;
    device
}

proptest! {
    #![proptest_config(crate::random::programs(400))]

    #[test]
    fn peak_and_its_live_set_are_exact_whatever_was_overwritten(
        steps in steps(),
        max_entries in 0..9usize,
        sampling in samplings(),
    ) {
        let (oracle, copy) = run(&steps, max_entries, sampling);
        prop_assert_eq!(copy.peak.bytes, oracle.peak);
        prop_assert_eq!(all_untimed(&copy.peak.blocks), all_untimed(&oracle.at_peak));
        let device = as_device(&copy, sampling);
        let sum = |weights: &mut dyn Iterator<Item = (&Block, Weight)>| weights.map(|(_, weight)| weight.bytes).sum::<u64>();
        prop_assert_eq!(sum(&mut device.peak_weights()) + copy.peak.not_recorded, copy.peak.bytes);
        prop_assert_eq!(sum(&mut device.live_weights()) + copy.not_recorded, oracle.total());
        prop_assert_eq!(all_untimed(&copy.live), oracle.blocks());
    }

    /// Unrecorded bytes are those from before, unless no sampled block is left to account for the others.
    #[test]
    fn a_sample_stands_for_all_that_is_new(steps in steps()) {
        let sampling = Sampling::every(256);
        let (oracle, copy) = run(&steps, 4, sampling);
        let before = oracle.large_before()..=oracle.large_before() + SMALL_BEFORE;
        let small = |block: &Block| sampling.is_sampled(block.size) && block.size > 0;
        if copy.live.iter().any(small) {
            prop_assert!(before.contains(&copy.not_recorded), "{} {:?}", copy.not_recorded, before);
        } else {
            prop_assert_eq!(copy.not_recorded, oracle.large_before() + oracle.left_out);
        }
    }

    #[test]
    fn scopes_know_what_they_held_and_what_the_device_held(steps in steps(), sampling in samplings()) {
        let (mut oracle, copy) = run(&steps, 4, sampling);
        for &(_, context, _, largest) in &oracle.open {
            let peak = oracle.total_peak.entry(context).or_default();
            *peak = (*peak).max(largest);
        }
        for scope in &copy.scopes {
            prop_assert_eq!(scope.own_peak, oracle.own_peak.remove(&scope.context).unwrap_or(0));
            prop_assert_eq!(scope.total_peak, oracle.total_peak.remove(&scope.context));
            let allocations = oracle.allocations.remove(&scope.context).unwrap_or(0);
            prop_assert_eq!(scope.allocations, Sampling::whole(allocations));
            prop_assert_eq!(scope.calls, oracle.calls.remove(&scope.context).unwrap_or(0));
        }
        oracle.own_peak.retain(|_, bytes| *bytes > 0);
        prop_assert!(oracle.own_peak.is_empty() && oracle.total_peak.is_empty());
    }

    #[test]
    fn replaying_the_log_gives_the_final_state(
        steps in steps(),
        max_entries in 1..200usize,
        sampling in samplings(),
    ) {
        let (_, copy) = run(&steps, max_entries, sampling);
        let device = as_device(&copy, sampling);
        let mut replay = Replay::at_log_start(&device);
        prop_assert!(device.overwritten > 0 || replay.blocks().is_empty());
        let mut largest = replay.bytes();
        for record in &device.records {
            replay.apply(record);
            largest = largest.max(replay.bytes());
        }
        prop_assert_eq!(all_untimed(&replay.blocks()), all_untimed(&device.live));
        if device.overwritten == 0 && !sampling.is_on() && !steps.iter().any(|s| matches!(s, LedgerStep::FreeUnknown { .. })) {
            prop_assert_eq!(largest + BASE, device.peak.bytes);
        }
    }

    #[test]
    fn the_log_holds_the_newest_records_in_order(steps in steps(), max_entries in 1..40usize) {
        let (_, all) = run(&steps, usize::MAX, Sampling::default());
        let (_, some) = run(&steps, max_entries, Sampling::default());
        let kept = all.records.len().min(max_entries);
        prop_assert_eq!(some.records.len(), kept);
        prop_assert_eq!(some.overwritten, (all.records.len() - kept) as u64);
        let newest = all.records[all.records.len() - kept..].iter();
        for (a, b) in newest.zip(&some.records) {
            prop_assert_eq!((a.address, a.size, a.kind, a.alloc_seq), (b.address, b.size, b.kind, b.alloc_seq));
        }
        prop_assert!(some.records.is_sorted_by_key(|r| r.time_ns));
    }
}

#[test]
fn the_peak_is_the_start_if_everything_is_only_freed() {
    let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now());
    ledger.free_unknown(1, 100, EventSite::default());
    ledger.alloc(2, 60, EventSite::default());
    let peak = ledger.copy(100).peak;
    assert_eq!((peak.bytes, peak.seq, peak.not_recorded), (100, None, 100));
    assert!(peak.blocks.is_empty());
}

#[test]
fn what_was_not_freed_after_all_counts_for_a_peak_that_was_reset_meanwhile() {
    let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now());
    ledger.free_unknown(1, 100, EventSite::default());
    ledger.restart(Instant::now());
    ledger.undo_free_unknown(1, 100);
    let copy = ledger.copy(100);
    assert_eq!((copy.peak.bytes, copy.peak.not_recorded), (100, 100));
    let bytes = ledger.stats(100).allocated_bytes;
    assert_eq!((bytes.current, bytes.peak), (100, 100));
}

#[test]
fn an_equal_maximum_does_not_take_over() {
    let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now());
    ledger.alloc(1, 50, EventSite::default());
    ledger.free(1, EventSite::default());
    ledger.alloc(2, 50, EventSite::default());
    let peak = ledger.copy(0).peak;
    assert_eq!((peak.bytes, peak.seq, peak.blocks[0].address), (50, NonZeroU64::new(1), 1));
}

#[test]
fn an_address_with_a_newer_block_is_left_alone() {
    let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now());
    ledger.alloc(1, 50, EventSite::default());
    ledger.free(1, EventSite::default());
    ledger.alloc(1, 60, EventSite::default());
    assert!(ledger.free_if(1, 1, EventSite::default()).is_none());
    assert_eq!(ledger.copy(0).live.len(), 1);
    assert_eq!(ledger.free_if(1, 2, EventSite::default()).map(|held| held.size()), Some(60));
}

#[test]
fn a_record_is_small() {
    assert_eq!(size_of::<memtrace_core::snapshot::Record>(), 56);
}
