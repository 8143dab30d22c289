//! Tests of the registry of measurements, without threads.

use super::*;
use crate::record::event_site::EventSite;
use crate::record::measure::others::WorkOwner;
use crate::record::unwind::stack::StackPart;

fn alloc(registry: &mut Registry, current: Id, address: u64) {
    registry.alloc(current, (Device::Cpu, address, 10), EventSite::default(), false);
}

/// (live bytes, freed bytes that were allocated elsewhere).
fn held(registry: &Registry, id: Id) -> (u64, u64) {
    let (devices, ..) = registry.copy(id).unwrap();
    devices.first().map_or((0, 0), |on| (on.ledger.stats.allocated_bytes.current, on.foreign_freed))
}

fn free(registry: &mut Registry, current: Id, address: u64) -> Option<MeasuredFree> {
    registry.free(current, (Space::Heap, address), Some((Device::Cpu, 10)), EventSite::default())
}

#[test]
fn nothing_stays_behind_in_whatever_order_measurements_are_closed() {
    for carried in 0..8 {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut registry = Registry::new();
            let mut ids = [0; 3];
            for level in 0..3 {
                ids[level] = registry.begin(ids[level.saturating_sub(1)], Family::UNKNOWN).unwrap();
                alloc(&mut registry, ids[level], level as u64);
            }
            ids.iter().enumerate().filter(|(at, _)| carried & (1 << at) != 0).for_each(|(_, id)| registry.carry(*id));
            order.into_iter().for_each(|at| registry.close(ids[at]));
            assert_eq!((registry.measures.len(), registry.owners.len(), registry.open), (0, 0, 0), "{order:?}");
        }
    }
}

#[test]
fn work_that_carries_a_closed_measurement_is_its_parents() {
    let mut registry = Registry::new();
    let outer = registry.begin(0, Family::UNKNOWN).unwrap();
    let inner = registry.begin(outer, Family::UNKNOWN).unwrap();
    let innermost = registry.begin(inner, Family::UNKNOWN).unwrap();
    [inner, innermost].into_iter().for_each(|id| registry.carry(id));
    alloc(&mut registry, innermost, 1);
    assert_eq!([outer, inner, innermost].map(|id| held(&registry, id).0), [10; 3]);
    registry.close(inner);
    alloc(&mut registry, inner, 2);
    alloc(&mut registry, innermost, 3);
    assert_eq!((held(&registry, outer).0, held(&registry, innermost).0), (30, 20));
    registry.close(innermost);
    alloc(&mut registry, innermost, 4);
    assert_eq!(held(&registry, outer).0, 40);
    assert_eq!((registry.active_for(outer, inner), registry.active_for(0, innermost)), (outer, outer));
    registry.close(outer);
    assert!(!registry.alloc(innermost, (Device::Cpu, 5, 10), EventSite::default(), false), "nobody's");
    assert_eq!(registry.measures.len(), 0);
}

#[test]
fn a_carried_measurement_is_in_force_unless_another_is_inside_it() {
    let mut registry = Registry::new();
    let (outer, other) = (registry.begin(0, Family::UNKNOWN).unwrap(), registry.begin(0, Family::UNKNOWN).unwrap());
    let inner = registry.begin(outer, Family::UNKNOWN).unwrap();
    assert_eq!(registry.active_for(inner, outer), inner);
    assert_eq!(registry.active_for(outer, inner), inner);
    assert_eq!(registry.active_for(other, inner), inner);
    assert_eq!(registry.active_for(inner, 0), inner);
}

#[test]
fn an_address_that_comes_again_is_another_block() {
    let mut registry = Registry::new();
    let first = registry.begin(0, Family::UNKNOWN).unwrap();
    let second = registry.begin(0, Family::UNKNOWN).unwrap();
    alloc(&mut registry, first, 1);
    alloc(&mut registry, second, 1);
    assert_eq!([first, second].map(|id| held(&registry, id)), [(0, 0), (10, 0)], "the first free was missed");
    let taken = free(&mut registry, first, 1).unwrap();
    assert_eq!([first, second].map(|id| held(&registry, id)), [(0, 10), (0, 0)]);
    registry.undo_free(taken);
    assert_eq!([first, second].map(|id| held(&registry, id)), [(0, 0), (10, 0)]);
}

#[test]
fn a_forked_child_keeps_the_measurements_of_its_thread() {
    let mut registry = Registry::new();
    let outer = registry.begin(0, Family::UNKNOWN).unwrap();
    let inner = registry.begin(outer, Family::UNKNOWN).unwrap();
    let elsewhere = registry.begin(outer, Family::UNKNOWN).unwrap();
    let carried = registry.begin(inner, Family::UNKNOWN).unwrap();
    registry.carry(carried);
    registry.close(carried);
    (0..).zip([outer, inner, elsewhere]).for_each(|(address, id)| alloc(&mut registry, id, address));
    registry.alloc_of_other((Device::Cpu, 100, 10), EventSite::default(), Family::UNKNOWN);
    assert_eq!(registry.others.helpers(inner).len(), 1);
    registry.keep_only(inner);
    assert_eq!((registry.open, registry.owners.len()), (2, 2));
    assert_eq!(registry.others.helpers(inner).len(), 0, "other threads are not in the child");
    assert!(registry.copy(elsewhere).is_none());
    [inner, outer].into_iter().for_each(|id| registry.close(id));
    assert_eq!((registry.measures.len(), registry.owners.len(), registry.open), (0, 0, 0));
}

fn work_owner(registry: &Registry, words: &[u64]) -> WorkOwner {
    registry.work_owner(Family::UNKNOWN, |each| words.iter().for_each(|word| each(*word, 0)))
}

#[test]
fn work_is_whose_memory_it_has_in_hand() {
    let mut registry = Registry::new();
    let (one, other) = (registry.begin(0, Family::UNKNOWN).unwrap(), registry.begin(0, Family::UNKNOWN).unwrap());
    let inside = registry.begin(one, Family::UNKNOWN).unwrap();
    for (id, address) in [(one, 16), (other, 32), (inside, 48)] {
        alloc(&mut registry, id, address);
    }
    let stack = StackPart { start: 1000, end: 2000 };
    registry.stacks.add(other, stack, 7);
    assert_eq!(work_owner(&registry, &[]), WorkOwner::Nobody);
    assert_eq!(work_owner(&registry, &[15, 17, 2000, 999]), WorkOwner::Nobody);
    assert_eq!(work_owner(&registry, &[16]), WorkOwner::One(one));
    assert_eq!(work_owner(&registry, &[1500]), WorkOwner::One(other));
    assert_eq!(
        [[16, 48], [48, 16]].map(|words| work_owner(&registry, &words)),
        [WorkOwner::One(inside); 2],
        "the inner one's"
    );
    assert_eq!(work_owner(&registry, &[16, 32, 1000]), WorkOwner::Several);
    registry.stacks.forget_others(StackPart { start: 1999, end: 3000 }, 7);
    assert_eq!(work_owner(&registry, &[1500]), WorkOwner::One(other), "the thread goes on");
    registry.stacks.forget_others(StackPart { start: 1999, end: 3000 }, 8);
    assert_eq!(work_owner(&registry, &[1500]), WorkOwner::Nobody, "the stack is another thread's now");
    free(&mut registry, 0, 16);
    assert_eq!(work_owner(&registry, &[16]), WorkOwner::Nobody);
}

#[test]
fn a_stack_between_blocks_is_a_stack() {
    let mut registry = Registry::new();
    let id = registry.begin(0, Family::UNKNOWN).unwrap();
    [16, 4000].into_iter().for_each(|address| alloc(&mut registry, id, address));
    registry.stacks.add(id, StackPart { start: 1000, end: 2000 }, 7);
    assert_eq!(work_owner(&registry, &[1504]), WorkOwner::One(id));
    assert_eq!(work_owner(&registry, &[2504]), WorkOwner::Nobody);
}

#[test]
fn a_measurement_inside_another_has_the_stack_for_as_long_as_it_is_open() {
    let mut registry = Registry::new();
    let outer = registry.begin(0, Family::UNKNOWN).unwrap();
    registry.stacks.add(outer, StackPart { start: 1000, end: 2000 }, 7);
    for _ in 0..3 {
        let inner = registry.begin(outer, Family::UNKNOWN).unwrap();
        registry.stacks.add(inner, StackPart { start: 800, end: 1800 }, 7);
        registry.stacks.add(inner, StackPart { start: 3000, end: 4000 }, 8);
        assert_eq!(work_owner(&registry, &[1500]), WorkOwner::One(inner));
        registry.close(inner);
        assert_eq!(work_owner(&registry, &[1500]), WorkOwner::One(outer));
        assert_eq!(work_owner(&registry, &[3500]), WorkOwner::One(outer), "of a thread that it has begun");
    }
    assert_eq!(registry.stacks.len(), 2);
    registry.close(outer);
    assert_eq!(registry.stacks.len(), 0);
}

#[test]
fn work_that_is_handed_over_is_kept_apart() {
    let mut registry = Registry::new();
    let id = registry.begin(0, Family::UNKNOWN).unwrap();
    alloc(&mut registry, id, 16);
    assert!(registry.alloc(id, (Device::Cpu, 32, 100), EventSite::default(), true));
    let (devices, ..) = registry.copy(id).unwrap();
    let live = |handed| devices.iter().find(|on| on.handed == handed).unwrap().ledger.stats.allocated_bytes.current;
    assert_eq!((live(false), live(true)), (10, 100));
    let of = |address| registry.certain_owner((Space::Heap, address));
    assert_eq!(
        (of(16), of(32)),
        (id, 0),
        "a thread that begins with a block of handed-over work is not certainly one of it"
    );
    free(&mut registry, 0, 32);
    let (devices, ..) = registry.copy(id).unwrap();
    assert_eq!(devices.iter().map(|on| on.ledger.stats.allocated_bytes.current).sum::<u64>(), 10);
}

#[test]
fn a_measurement_of_the_whole_process_has_everything_in_it() {
    let mut registry = Registry::new();
    let before = registry.begin(0, Family::UNKNOWN).unwrap();
    let whole = registry.begin(0, Family::UNKNOWN).unwrap();
    registry.make_whole(whole);
    let inside = registry.begin(0, Family::UNKNOWN).unwrap();
    (1..).zip([before, inside, 0]).for_each(|(address, id)| alloc(&mut registry, id, address));
    assert_eq!([before, inside, whole].map(|id| held(&registry, id).0), [10, 10, 30]);
    let second = registry.begin(inside, Family::UNKNOWN).unwrap();
    registry.make_whole(second);
    alloc(&mut registry, 0, 4);
    assert_eq!([before, inside, whole, second].map(|id| held(&registry, id).0), [10, 10, 40, 10]);
    [whole, second, inside, before].into_iter().for_each(|id| registry.close(id));
    assert_eq!((registry.measures.len(), registry.owners.len(), registry.whole != 0), (0, 0, false));
}

#[test]
fn work_that_is_handed_over_belongs_to_the_whole_process_as_any() {
    let mut registry = Registry::new();
    let whole = registry.begin(0, Family::UNKNOWN).unwrap();
    registry.make_whole(whole);
    assert!(registry.are_all_whole());
    let one = registry.begin(0, Family::UNKNOWN).unwrap();
    alloc(&mut registry, one, 16);
    assert!(!registry.are_all_whole() && registry.is_carried(one) && !registry.is_carried(0));
    assert!(registry.alloc(one, (Device::Cpu, 32, 100), EventSite::default(), true));
    let of = |registry: &Registry, id, handed| {
        let (devices, ..) = registry.copy(id).unwrap();
        devices.iter().find(|on| on.handed == handed).map(|on| on.ledger.stats.allocated_bytes.current)
    };
    assert_eq!([false, true].map(|handed| of(&registry, one, handed)), [Some(10), Some(100)]);
    assert_eq!([false, true].map(|handed| of(&registry, whole, handed)), [Some(110), None]);
    free(&mut registry, 0, 32);
    assert_eq!((of(&registry, one, true), of(&registry, whole, false)), (Some(0), Some(10)));
}

#[test]
fn work_of_a_thread_around_a_measurement_may_be_for_it() {
    let mut registry = Registry::new();
    let outer = registry.begin(0, Family::UNKNOWN).unwrap();
    let work = |registry: &mut Registry, address, size| {
        let new = (Device::Cpu, address, size);
        registry.alloc(outer, new, EventSite::default(), false);
        if registry.has_open_inside(outer) {
            registry.alloc_of_other(new, EventSite::default(), Family::UNKNOWN);
        }
    };
    let most =
        |registry: &Registry, id| registry.others.helpers(id).first().map(|helper| (helper.bytes, helper.allocations));
    work(&mut registry, 1, 100);
    let first = registry.begin(outer, Family::UNKNOWN).unwrap();
    work(&mut registry, 2, 10);
    free(&mut registry, 0, 1);
    let second = registry.begin(first, Family::UNKNOWN).unwrap();
    work(&mut registry, 3, 20);
    free(&mut registry, 0, 2);
    work(&mut registry, 4, 15);
    assert_eq!([first, second].map(|id| most(&registry, id)), [Some((35, 3)), Some((35, 2))], "since each began");
    assert_eq!((most(&registry, outer), held(&registry, outer).0), (None, 35), "counted, so not of others");
    registry.close(second);
    let mut live = 0;
    registry.each_of_helpers(first, |_, _, size| live += size);
    assert_eq!((most(&registry, second), live), (None, 35));
    registry.close(first);
    assert!(!registry.has_open_inside(outer));
    registry.close(outer);
    assert_eq!((registry.measures.len(), registry.owners.len(), registry.others.helpers(first).len()), (0, 0, 0));
}
