//! The registry of measurements, without threads.

use super::*;

fn alloc(registry: &mut Registry, current: Id, address: u64) {
    registry.alloc(current, Device::Cpu, address, 10, Site::default());
}

/// Bytes live and freed of others.
fn held(registry: &Registry, id: Id) -> (u64, u64) {
    let (devices, ..) = registry.copy(id).unwrap();
    devices.first().map_or((0, 0), |on| (on.ledger.stats.allocated_bytes.current, on.foreign_freed))
}

fn free(registry: &mut Registry, current: Id, address: u64) -> Option<Taken> {
    registry.free(current, (Space::Heap, address), Some((Device::Cpu, 10)), Site::default())
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
            assert_eq!((registry.measures.len(), registry.owners.len(), registry.open()), (0, 0, 0), "{order:?}");
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
    assert_eq!((registry.in_force(outer, inner), registry.in_force(0, innermost)), (outer, outer));
    registry.close(outer);
    assert!(!registry.alloc(innermost, Device::Cpu, 5, 10, Site::default()), "nobody's");
    assert_eq!(registry.measures.len(), 0);
}

#[test]
fn a_carried_measurement_is_in_force_unless_another_is_inside_it() {
    let mut registry = Registry::new();
    let (outer, other) = (registry.begin(0, Family::UNKNOWN).unwrap(), registry.begin(0, Family::UNKNOWN).unwrap());
    let inner = registry.begin(outer, Family::UNKNOWN).unwrap();
    assert_eq!(registry.in_force(inner, outer), inner);
    assert_eq!(registry.in_force(outer, inner), inner);
    assert_eq!(registry.in_force(other, inner), inner);
    assert_eq!(registry.in_force(inner, 0), inner);
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
    registry.keep_only(inner);
    assert_eq!((registry.open(), registry.owners.len()), (2, 2));
    assert!(registry.copy(elsewhere).is_none());
    [inner, outer].into_iter().for_each(|id| registry.close(id));
    assert_eq!((registry.measures.len(), registry.owners.len(), registry.open()), (0, 0, 0));
}
