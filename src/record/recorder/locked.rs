//! Locks slots (places for ledgers), with the CPU's ledger up to date.

use memtrace_core::snapshot::Device;

use super::slots::{DEVICES, LockedSlot, MAX_DEVICES, index_of};
use super::waiting;

pub(super) fn slot_of(device: Device) -> Option<LockedSlot> {
    index_of(device).and_then(slot)
}

/// [`slot_of`] for data that is already in the ledger: heap events may keep
/// waiting.
pub(super) fn slot_as_it_is(device: Device) -> Option<LockedSlot> {
    match index_of(device)? {
        0 => Some(waiting::lock_as_it_is()),
        index => DEVICES.get(index).map(|slot| slot.lock()),
    }
}

/// The slot with this index. The CPU's ledger has taken all earlier heap events.
pub(super) fn slot(index: usize) -> Option<LockedSlot> {
    match index {
        0 => Some(waiting::lock_heap()),
        _ => DEVICES.get(index).map(|slot| slot.lock()),
    }
}

/// All slots, one after the other.
pub(super) fn each_slot() -> impl Iterator<Item = LockedSlot> {
    (0..MAX_DEVICES).filter_map(slot)
}

/// All slots at once.
pub(super) fn all_slots() -> [LockedSlot; MAX_DEVICES] {
    std::array::from_fn(|index| match index {
        0 => waiting::lock_heap(),
        _ => DEVICES[index].lock(),
    })
}
