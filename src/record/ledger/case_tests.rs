//! Single cases that the ledger's random programs do not reach.

use std::time::Instant;

use memtrace_core::snapshot::{
    Block, Category, ContextId, GraphNodeKind, MemoryKind, OutOfMemory, Record, RecordKind, Sampling, StackId, ThreadId,
};

use super::names::{BlockLabel, MAX_NAMES};
use super::segments::{QueryTicket, SegmentAnswer};
use super::*;
use crate::record::CONTEXTS;
use crate::record::event_site::EventSite;
use crate::record::scarce::with_memory_for;

const SITE: EventSite =
    EventSite { stack: StackId(5), context: ContextId(6), thread: ThreadId(7), stream: 8, memory: MemoryKind::Graph };

fn ledger(options: LedgerOptions) -> Ledger {
    Ledger::new(LedgerOptions { max_entries: 1000, stacks_in_log: true, ..options }, Instant::now())
}

fn records(ledger: &Ledger) -> Vec<Record> {
    ledger.copy(0).records
}

fn names(ledger: &Ledger) -> Vec<String> {
    ledger.copy(0).names.into_iter().map(|name| name.name).collect()
}

#[test]
fn a_second_block_at_an_address_frees_the_first_without_a_stack_and_counts() {
    for long_records in [false, true] {
        let mut ledger = ledger(LedgerOptions { long_records, ..LedgerOptions::default() });
        for size in [10, 20, 30] {
            ledger.alloc(1, size, SITE);
        }
        assert_eq!(ledger.copy(0).missed_frees, 2);
        let frees: Vec<Record> =
            records(&ledger).into_iter().filter(|record| record.kind == RecordKind::Free).collect();
        assert_eq!(
            frees.iter().map(|free| (free.size, free.stack)).collect::<Vec<_>>(),
            [(10, StackId::NONE), (20, StackId::NONE)]
        );
        let whole = EventSite { stack: frees[0].alloc_stack, thread: frees[0].thread, stream: frees[0].stream, ..SITE };
        assert_eq!((whole.stack, whole.thread, whole.stream), (SITE.stack, SITE.thread, SITE.stream));
    }
}

#[test]
fn the_free_of_a_block_from_before_the_recording_has_its_own_thread_stream_and_kind() {
    let mut ledger = ledger(LedgerOptions { long_records: true, ..LedgerOptions::default() });
    ledger.free_unknown(1, 100, SITE);
    let [free] = records(&ledger).try_into().unwrap();
    assert_eq!((free.kind, free.address, free.size), (RecordKind::Free, 1, 100));
    assert_eq!(
        (free.stack, free.thread, free.stream, free.memory),
        (SITE.stack, SITE.thread, SITE.stream, SITE.memory)
    );
}

/// A size above 1 TiB makes a record that cannot be packed.
#[test]
fn records_of_any_length_have_stacks_and_threads_or_no_stacks() {
    for (size, long_records) in [100, 1 << 50].into_iter().flat_map(|size| [(size, false), (size, true)]) {
        for stacks_in_log in [true, false] {
            let options = LedgerOptions { max_entries: 1000, stacks_in_log, long_records, ..LedgerOptions::default() };
            let mut ledger = Ledger::new(options, Instant::now());
            ledger.alloc(1, size, SITE);
            ledger.free(1, EventSite { stack: StackId(9), thread: ThreadId(10), ..SITE });
            let expected = if stacks_in_log { (SITE.stack, StackId(9), SITE.stack) } else { Default::default() };
            let [alloc, free] = records(&ledger).try_into().unwrap();
            assert_eq!((alloc.stack, free.stack, free.alloc_stack), expected, "{size} {long_records}");
            assert_eq!((alloc.thread, free.thread), (SITE.thread, ThreadId(10)), "{size} {long_records}");
        }
    }
}

#[test]
fn the_log_has_the_records_that_were_asked_for_and_nothing_else_is_lost() {
    use RecordKind::{Alloc, Free};
    let kinds = |max_entries, skip_allocs, skip_frees| {
        let options = LedgerOptions { max_entries, skip_allocs, skip_frees, ..LedgerOptions::default() };
        let mut ledger = Ledger::new(options, Instant::now());
        ledger.alloc(1, 10, SITE);
        ledger.free(1, SITE);
        ledger.free_unknown(2, 10, SITE);
        let copy = ledger.copy(0);
        let times: Vec<bool> = copy.records.iter().map(|record| record.time_ns > 0).collect();
        assert!(copy.overwritten == 0 && !times.contains(&false), "{max_entries} {skip_allocs} {skip_frees}");
        copy.records.iter().map(|record| record.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(9, false, false), [Alloc, Free, Free]);
    assert_eq!([kinds(9, true, false), kinds(9, false, true)], [vec![Free, Free], vec![Alloc]]);
    for (skip_allocs, skip_frees) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(kinds(0, skip_allocs, skip_frees), []);
    }
    assert_eq!(kinds(9, true, true), []);
}

#[test]
fn a_refused_request_has_its_time_and_is_retried_if_the_same_thread_asks_for_as_much() {
    let mut ledger = ledger(LedgerOptions::default());
    let refused = OutOfMemory { size: 50, thread: ThreadId(7), ..OutOfMemory::default() };
    ledger.alloc(1, 10, SITE);
    ledger.refused(refused);
    ledger.alloc(2, 50, EventSite { thread: ThreadId(1), ..SITE });
    assert_eq!(ledger.copy(0).stats.num_alloc_retries, 0, "another thread");
    ledger.alloc(3, 51, SITE);
    assert_eq!(ledger.copy(0).stats.num_alloc_retries, 0, "another size");
    ledger.alloc(4, 50, SITE);
    assert_eq!(ledger.copy(0).stats.num_alloc_retries, 0, "not the next request");
    ledger.refused(refused);
    ledger.refused(refused);
    ledger.alloc(5, 50, SITE);
    let copy = ledger.copy(0);
    assert_eq!(copy.stats.num_alloc_retries, 2, "a refused retry, and one that succeeded");
    let times: Vec<u64> = copy.records[..2].iter().map(|record| record.time_ns).collect();
    assert!((times[0]..=times[1]).contains(&copy.ooms[0].time_ns) && times[0] > 0);
}

#[test]
fn after_a_restart_the_peak_is_of_the_time_since() {
    let mut ledger = ledger(LedgerOptions::default());
    ledger.alloc(1, 100, SITE);
    ledger.alloc(2, 10, SITE);
    ledger.free(1, SITE);
    ledger.restart(Instant::now());
    assert_eq!(ledger.copy(0).peak.bytes, 10);
    ledger.alloc(3, 5, SITE);
    ledger.free(2, SITE);
    let peak = ledger.copy(0).peak;
    assert_eq!((peak.bytes, peak.blocks.len(), peak.not_recorded), (15, 2, 0));
}

#[test]
fn the_room_below_the_peak_is_known_if_there_is_a_threshold() {
    let mut ledger = ledger(LedgerOptions { min_size: 2, ..LedgerOptions::default() });
    ledger.alloc(1, 100, SITE);
    assert_eq!(ledger.below_peak(), Some(0));
    ledger.alloc(2, 10, SITE);
    ledger.free(1, SITE);
    assert_eq!(ledger.below_peak(), Some(100));
    ledger.options.min_size = 1;
    assert_eq!(ledger.below_peak(), None);
}

#[test]
fn a_restart_keeps_the_names_of_live_blocks_only() {
    let mut ledger = ledger(LedgerOptions::default());
    for address in [1, 2, 3] {
        ledger.alloc(address, 10, SITE);
        assert!(ledger.name(address, ["one", "two", "three"][address as usize - 1].into()));
    }
    ledger.free(1, SITE);
    ledger.free(2, SITE);
    ledger.alloc(2, 10, SITE);
    assert_eq!(names(&ledger), ["one", "two", "three"]);
    ledger.restart(Instant::now());
    assert_eq!(names(&ledger), ["three"]);
}

#[test]
fn if_there_are_too_many_names_blocks_that_are_live_or_of_the_peak_keep_theirs() {
    let mut ledger = ledger(LedgerOptions::default());
    let name = |ledger: &mut Ledger, address, name| {
        ledger.alloc(address, 10, SITE);
        assert!(ledger.name(address, BlockLabel { name, category: Category::Unknown, if_new: false }));
    };
    (1..=100).for_each(|address| name(&mut ledger, address, "peak"));
    (1..=100).for_each(|address| assert!(ledger.free(address, SITE).is_some()));
    (1..=10).for_each(|address| name(&mut ledger, 1000 + address, "live"));
    for _ in 110..MAX_NAMES {
        name(&mut ledger, 2000, "idle");
        ledger.free(2000, SITE);
    }
    assert!(ledger.name(1001, "renamed".into()));
    assert_eq!(names(&ledger).len(), MAX_NAMES, "a block that has a name needs no room");
    name(&mut ledger, 3000, "new");
    let names = names(&ledger);
    let count = |text| names.iter().filter(|name| *name == text).count();
    assert_eq!(["peak", "live", "renamed", "new"].map(count), [100, 9, 1, 1]);
    assert_eq!(count("idle"), (MAX_NAMES - 110).div_ceil(2));
}

#[test]
fn a_ledger_for_another_device_has_the_marks_and_the_open_scopes() {
    let mut ledger = ledger(LedgerOptions::default());
    let context = CONTEXTS.intern(ContextId::ROOT, "forward", false);
    ledger.enter_scope(1, context, ThreadId(1));
    ledger.alloc(1, 100, EventSite { context, ..SITE });
    let mut other = ledger.for_other_device(ledger.options);
    assert_eq!((other.copy(0).marks, other.copy(0).live), (ledger.copy(0).marks, Vec::new()));
    other.alloc(1, 10, EventSite { context, ..SITE });
    other.exit_scope(1, context, ThreadId(1));
    let copy = other.copy(0);
    let [scope] = copy.scopes.try_into().unwrap();
    assert_eq!((scope.context, scope.calls, scope.own_peak, scope.total_peak), (context, 1, 10, Some(10)));
    assert_eq!(copy.marks.iter().map(|mark| mark.enter).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_copy_has_segments_nodes_times_and_what_was_lost() {
    let mut ledger = ledger(LedgerOptions { has_segments: true, ..LedgerOptions::default() });
    let answer = SegmentAnswer { address: 0, size: 1000, pool: 1, pool_reserved: 1000 };
    assert!(ledger.segment(answer, QueryTicket::default(), SITE));
    ledger.alloc(1, 100, SITE);
    ledger.calls.on_alloc(SITE.stack, SITE.context, 5, true);
    let (kind, block) = (GraphNodeKind::Result, None);
    ledger.graph_nodes.push(GraphNode { time_ns: 1, thread: SITE.thread, place: 0, kind, bytes: 100, block });
    assert!(!with_memory_for(0, || ledger.name(1, "weight".into())));
    with_memory_for(0, || ledger.enter_scope(1, ContextId(1), SITE.thread));
    let copy = ledger.copy(0);
    assert!(copy.duration_ns >= copy.records[0].time_ns && copy.lost_scopes > 0);
    assert_eq!((copy.lost_names, copy.graph_nodes.len(), copy.graph_nodes[0].bytes), (1, 1, 100));
    let [segment] = copy.segment_records.try_into().unwrap();
    assert_eq!((segment.address, segment.size, segment.stack), (0, 1000, SITE.stack));
    assert_eq!((copy.segments.len(), copy.stats.reserved_bytes.current), (1, 1000));
    assert_eq!((copy.calls.len(), copy.calls[0].allocs, copy.calls[0].growing), (1, 1, 1));
}

/// Bytes outside the ledger under test, in small and in large blocks.
mod outside {
    use std::cell::Cell;

    thread_local! {
        pub(super) static BYTES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn ask(_: u64, _: u64) -> (u64, u64) {
        BYTES.get()
    }
}

/// A ledger that records a sample of the blocks below 256 bytes.
fn sampled(small: u64, large: u64) -> Ledger {
    outside::BYTES.set((small, large));
    let (sampling, outside) = (Sampling::every(256), Some(outside::ask as AskOutside));
    let mut ledger = ledger(LedgerOptions { sampling, outside, ..LedgerOptions::default() });
    ledger.take_initial_counts();
    ledger
}

#[test]
fn after_a_restart_fewer_small_blocks_may_be_from_before() {
    let mut ledger = sampled(3000, 7000);
    outside::BYTES.set((1000, 7000));
    ledger.restart(Instant::now());
    let peak = ledger.copy(10_000).peak;
    assert_eq!((peak.bytes, peak.not_recorded), (8000, 8000));
    outside::BYTES.set((2500, 7000));
    ledger.alloc(1, 100, SITE);
    // Of the 2,600 bytes in small blocks, 1,000 may be from before; the block stands for the others.
    assert_eq!(ledger.copy(10_000).not_recorded, 9600 - 1600);
}

#[test]
fn blocks_of_refused_frees_count_at_a_peak_of_a_sample() {
    let mut ledger = sampled(3000, 0);
    let [small, large] = [(1, 100), (2, 1000)].map(|(address, size)| {
        ledger.alloc(address, size, SITE);
        ledger.free(address, SITE).unwrap().block()
    });
    ledger.alloc(3, 5000, SITE);
    let weight = Sampling::every(256).bytes(100);
    for (block, all) in [(small, 8100), (large, 9100)] {
        assert!(ledger.undo_free(&block));
        let copy = ledger.copy(3000);
        assert_eq!((copy.peak.bytes, copy.stats.counted.unwrap().at_peak), (all, all));
        assert_eq!(copy.peak.not_recorded, 3100 - weight);
    }
}

#[test]
fn blocks_without_room_are_counted_and_nothing_else_changes() {
    let mut ledger = ledger(LedgerOptions::default());
    for lost in 1..=2 {
        assert!(!with_memory_for(0, || ledger.alloc(lost, 10, SITE)));
        let copy = ledger.copy(0);
        assert_eq!((copy.lost_blocks, copy.live.len(), copy.peak.bytes, copy.records.len()), (lost, 0, 0, 0));
    }
    assert!(ledger.alloc(3, 10, SITE));
    assert_eq!(ledger.copy(0).peak.bytes, 10);
}

#[test]
fn a_refused_free_of_a_block_whose_address_was_taken_is_a_lost_block() {
    let mut ledger = ledger(LedgerOptions::default());
    ledger.alloc(1, 10, SITE);
    let block = ledger.free(1, SITE).unwrap().block();
    ledger.alloc(1, 20, SITE);
    for lost in 1..=2 {
        assert!(!ledger.undo_free(&block));
        let copy = ledger.copy(0);
        assert_eq!((copy.lost_blocks, copy.live[0].size, copy.peak.bytes), (lost, 20, 20));
    }
}

#[test]
fn a_threads_last_free_is_kept_for_one_undo() {
    let mut ledger = ledger(LedgerOptions::default());
    ledger.keep_free(ThreadId(1), LedgerFree::FromBefore(5));
    ledger.keep_free(ThreadId(2), LedgerFree::NotRecorded);
    assert!(matches!(ledger.kept_free(ThreadId(1)), Some(LedgerFree::FromBefore(5))));
    assert!(ledger.kept_free(ThreadId(1)).is_none());
    assert!(matches!(ledger.kept_free(ThreadId(2)), Some(LedgerFree::NotRecorded)));
}

#[test]
fn a_refused_free_of_a_block_from_before_the_recording_is_logged_with_its_size() {
    let mut ledger = ledger(LedgerOptions::default());
    ledger.free_unknown(1, 100, SITE);
    ledger.undo_free_unknown(1, 100);
    let logged: Vec<Record> = ledger.records.since(0).1.flatten().collect();
    assert_eq!(logged.iter().map(|record| (record.address, record.size)).collect::<Vec<_>>(), [(1, 100); 2]);
}

/// The free of the first block is refused after another block came and went: the peak was with both.
#[test]
fn a_peak_that_a_refused_free_had_hidden_has_its_blocks_as_they_were_allocated() {
    let mut ledger = ledger(LedgerOptions { long_records: true, ..LedgerOptions::default() });
    ledger.alloc(1, 100, SITE);
    let first = ledger.free(1, SITE).unwrap().block();
    let site = EventSite { stack: StackId(20), thread: ThreadId(21), ..SITE };
    ledger.alloc(2, 50, site);
    let second = ledger.copy(0).live[0];
    ledger.free(2, EventSite { stack: StackId(30), thread: ThreadId(31), ..SITE });
    assert!(ledger.undo_free(&first));
    let peak = ledger.copy(0).peak;
    assert_eq!((peak.bytes, peak.not_recorded, peak.blocks), (150, 0, vec![first, second]));
}

#[test]
fn a_scope_has_the_peak_that_a_refused_free_had_hidden_while_it_was_open() {
    let mut ledger = ledger(LedgerOptions::default());
    let context = CONTEXTS.intern(ContextId::ROOT, "forward", false);
    let comes_and_goes = |ledger: &mut Ledger, size| {
        ledger.alloc(2, size, SITE);
        ledger.free(2, SITE);
    };
    ledger.alloc(1, 100, SITE);
    let block = ledger.free(1, SITE).unwrap().block();
    comes_and_goes(&mut ledger, 70);
    ledger.enter_scope(1, context, ThreadId(1));
    comes_and_goes(&mut ledger, 50);
    assert!(ledger.undo_free(&block));
    let copy = ledger.copy(0);
    let scope = copy.scopes.iter().find(|scope| scope.context == context).unwrap();
    assert_eq!((copy.peak.bytes, scope.total_peak), (170, Some(150)));
}

/// The search for the hidden peak needs a block's free and an allocation for each freed block.
#[test]
fn a_hidden_peak_is_not_found_without_memory_and_lacks_the_blocks_for_which_there_is_none() {
    let mut found = Vec::new();
    for count in 0..30 {
        let mut ledger = ledger(LedgerOptions::default());
        ledger.alloc(1, 550, SITE);
        ledger.free(1, SITE);
        ledger.alloc(1, 100, SITE);
        let block = ledger.free(1, SITE).unwrap().block();
        (2..12).for_each(|address| _ = ledger.alloc(address, 50, SITE));
        (2..12).for_each(|address| _ = ledger.free(address, SITE));
        if with_memory_for(count, || ledger.undo_free(&block)) {
            let peak = ledger.copy(0).peak;
            let blocks: u64 = peak.blocks.iter().map(|block| block.size).sum();
            assert_eq!(blocks + peak.not_recorded, peak.bytes, "{count}");
            found.push((peak.bytes, peak.not_recorded));
        }
    }
    let in_part = found.iter().any(|(bytes, lost)| *bytes == 600 && *lost > 0);
    assert!(in_part && found.contains(&(600, 0)) && found.contains(&(550, 0)), "{found:?}");
}

#[test]
fn in_a_sample_no_hidden_peak_is_searched_for() {
    let mut ledger = sampled(0, 0);
    ledger.alloc(1, 100, SITE);
    let block = ledger.free(1, SITE).unwrap().block();
    ledger.alloc(2, 100, SITE);
    ledger.free(2, SITE);
    assert!(ledger.undo_free(&block));
    assert_eq!(ledger.copy(0).peak.bytes, 100);
}

#[test]
fn without_a_log_a_refused_free_counts_for_a_peak_since_unless_counters_were_reset() {
    for (is_reset, expected) in [(false, 600), (true, 100)] {
        let mut ledger = ledger(LedgerOptions::default());
        ledger.options.max_entries = 0;
        ledger.alloc(1, 100, SITE);
        let block = ledger.free(1, SITE).unwrap().block();
        ledger.alloc(2, 500, SITE);
        ledger.free(2, SITE);
        if is_reset {
            ledger.reset_peak();
        }
        assert!(ledger.undo_free(&block));
        assert_eq!((ledger.copy(0).peak.bytes, ledger.stats(0).allocated_bytes.peak), (600, expected));
    }
}

#[test]
fn a_refused_free_that_is_not_in_the_log_ends_the_search() {
    let mut ledger = ledger(LedgerOptions::default());
    ledger.alloc(1, 100, SITE);
    let block = ledger.free(1, SITE).unwrap().block();
    ledger.restart(Instant::now());
    assert!(ledger.undo_free(&block));
    assert_eq!(ledger.copy(0).peak.bytes, 100);
}

/// Whichever of the recorder's own allocations fails, bytes are counted, if not by block.
#[test]
fn sums_are_right_whenever_memory_runs_out() {
    for count in 0..40 {
        let mut ledger = ledger(LedgerOptions { long_records: true, ..LedgerOptions::default() });
        let (mut entered, mut live, mut lost) = (0, 0, 0);
        with_memory_for(count, || {
            for address in 1..=100 {
                let size = if address % 7 == 0 { 1 << 50 } else { address };
                let is_entered = ledger.alloc(address, size, SITE);
                lost += u64::from(!is_entered);
                entered += if is_entered { size } else { 0 };
            }
            live = entered;
            for address in (2..=100).step_by(2) {
                let Some(freed) = ledger.free(address, SITE).map(|held| held.block()) else { continue };
                live -= freed.size;
                if address % 6 == 0 {
                    let is_back = ledger.undo_free(&freed);
                    lost += u64::from(!is_back);
                    live += if is_back { freed.size } else { 0 };
                }
            }
        });
        let copy = ledger.copy(0);
        let sum = |blocks: &[Block]| blocks.iter().map(|block| block.size).sum::<u64>();
        assert_eq!((copy.lost_blocks, copy.peak.bytes), (lost, entered), "{count}");
        assert_eq!(sum(&copy.peak.blocks) + copy.peak.not_recorded, entered, "{count}");
        assert_eq!((sum(&copy.live), copy.stats.allocated_bytes.current), (live, live), "{count}");
    }
}
