//! The derived state of stories, checked by hand.

use super::super::{Device, ScopeStats, Stat};
use super::*;

fn sizes(blocks: &[Block]) -> Vec<u64> {
    blocks.iter().map(|block| block.size).collect()
}

#[test]
fn the_peak_and_the_counters_follow_from_the_story() {
    let device = two_lines_and_a_temporary().devices.remove(0);
    let (peak, stats) = (&device.peak, device.stats);
    assert_eq!((peak.bytes, peak.time_ns, peak.seq), (4524, 3_000, NonZeroU64::new(3)));
    assert_eq!((sizes(&peak.blocks), peak.not_recorded, peak.below_threshold), (vec![2000, 1000, 500], 1024, 128));
    assert_eq!((sizes(&device.live), device.not_recorded), (vec![2000, 500], 1024));
    assert_eq!(stats.allocated_bytes, Stat { current: 3524, peak: 4524, allocated: 3564, freed: 1064 });
    assert_eq!(stats.allocations, Stat { current: 2, peak: 3, allocated: 4, freed: 2 });
    assert_eq!((stats.reserved_bytes, stats.below_threshold), (stats.allocated_bytes, 128));
}

#[test]
fn what_was_there_before_may_be_the_peak_and_is_freed_in_parts() {
    let device = Story::cpu().before(100).free_from_before(60).alloc("block", 10).device();
    assert_eq!((device.peak.bytes, device.peak.seq, device.peak.not_recorded), (100, None, 100));
    assert_eq!((device.not_recorded, device.stats.allocations.freed), (40, 0));
    assert_eq!(device.stats.allocated_bytes, Stat { current: 50, peak: 100, allocated: 10, freed: 60 });
}

/// Thread 1 enters `b` again while it is open. Thread 2 is in `a`.
#[test]
fn scopes_hold_what_is_allocated_inside_and_see_what_is_live_meanwhile() {
    let mut trace = Story::cpu();
    trace.enter("a").alloc(1, 100).enter("a > b").enter("a > b").alloc(2, 20).leave("a > b");
    trace.thread(2).alloc(3, 3000).free(3).enter("a").alloc(4, 4).free(1);
    trace.thread(1).leave("a > b").leave("a").alloc(5, 50_000);
    let data = trace.build();
    let [a, b] = data.devices[0].scopes[..] else { panic!("two scopes") };
    let counts = |scope: ScopeStats| (scope.calls, scope.allocations, scope.allocated_bytes, scope.own_peak);
    assert_eq!((counts(a), a.total_peak), ((2, 3, 124, 124), Some(50_024)), "thread 2 never leaves it");
    assert_eq!((counts(b), b.total_peak), ((2, 1, 20, 20), Some(3120)));
    assert_eq!([a, b].map(|scope| data.context_path(scope.context)), ["a", "a > b"]);
    assert_eq!(data.devices[0].live[2].context, ContextId::ROOT);
}

#[test]
fn segments_are_reserved_with_the_blocks_outside_of_them() {
    let mut trace = Story::cuda(1);
    trace.segment_alloc(0x1000, 0x1000).alloc("inside", 100).alloc("outside", 7);
    trace.segment_alloc(0x8000, 0x1000).segment_free(0x8000).refused(9, None).alloc("retried", 9);
    let device = trace.device();
    assert_eq!(
        (device.device, device.segments[0].address, device.segments[0].estimated),
        (Device::Cuda(1), 0x1000, false)
    );
    assert_eq!(device.stats.reserved_bytes, Stat { current: 0x1010, peak: 0x2007, allocated: 0x2010, freed: 0x1000 });
    assert_eq!((device.stats.num_ooms, device.stats.num_alloc_retries), (1, 1));
}
