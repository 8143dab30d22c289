//! One slot per device for its ledger. Shared state is behind locks. Atomics are hints that are checked again under a
//! lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memtrace_core::snapshot::{Device, Settings};

use crate::record::ledger::Ledger;
use crate::record::lock::{Lock, Locked, rank};

/// Number of CUDA devices that can have a ledger. Blocks of other CUDA devices are counted as unplaced.
pub(super) const MAX_ORDINALS: u32 = 32;
/// The CPU, the CUDA devices by ordinal, then pinned, managed and imported memory.
pub(super) const MAX_DEVICES: usize = MAX_ORDINALS as usize + 4;

pub(super) type Slot = Lock<Option<Ledger>, { rank::DEVICES }>;
pub(super) type LockedSlot = Locked<'static, Option<Ledger>, { rank::DEVICES }>;

/// Locked only through the module `locked`, because heap events may be waiting for the CPU's ledger.
pub(super) static DEVICES: [Slot; MAX_DEVICES] = [const { Lock::new(None) }; MAX_DEVICES];
pub(super) static ACTIVE: Lock<Option<Settings>, { rank::ACTIVE }> = Lock::new(None);

/// One bit for each device that has a ledger. During a recording, it is written under the CPU slot's lock, and scopes
/// read it under the same lock. So a ledger that is created later knows every scope.
pub(super) static ACTIVE_DEVICES: AtomicU64 = AtomicU64::new(0);

/// Bytes that each CUDA device's pools had handed out when the recording began.
static BEFORE: [AtomicU64; MAX_ORDINALS as usize] = [const { AtomicU64::new(0) }; MAX_ORDINALS as usize];
static ANY_BEFORE: AtomicBool = AtomicBool::new(false);

/// Total bytes of each CUDA device, as its driver reported at the first recorded block. 0 until the driver is asked,
/// [`UNTOLD`] if it did not answer. The values are independent, so no order with other memory is needed.
static TOTALS: [AtomicU64; MAX_ORDINALS as usize] = [const { AtomicU64::new(0) }; MAX_ORDINALS as usize];
const UNTOLD: u64 = u64::MAX;

/// Every device that can have a ledger, in the order of the slots.
pub(crate) fn devices() -> impl Iterator<Item = Device> {
    let cuda = (0..MAX_ORDINALS).map(Device::Cuda);
    std::iter::once(Device::Cpu).chain(cuda).chain([Device::Pinned, Device::Managed, Device::Imported])
}

/// Whether the device can have a ledger.
pub(in crate::record) fn has_place_for(device: Device) -> bool {
    index_of(device).is_some()
}

pub(super) fn index_of(device: Device) -> Option<usize> {
    match device {
        Device::Cpu => Some(0),
        Device::Cuda(ordinal) if ordinal < MAX_ORDINALS => Some(ordinal as usize + 1),
        Device::Pinned => Some(MAX_DEVICES - 3),
        Device::Managed => Some(MAX_DEVICES - 2),
        Device::Imported => Some(MAX_DEVICES - 1),
        _ => None,
    }
}

pub(super) fn set_before(used: &[(u32, u64)]) {
    let bytes = |ordinal: usize| used.iter().find(|(known, _)| *known as usize == ordinal).map_or(0, |(_, used)| *used);
    BEFORE.iter().enumerate().for_each(|(ordinal, before)| before.store(bytes(ordinal), Ordering::Relaxed));
    ANY_BEFORE.store(used.iter().any(|(_, bytes)| *bytes > 0), Ordering::Relaxed);
}

/// Whether blocks were live on CUDA devices before the recording, as far as is known.
pub(crate) fn had_blocks_before() -> bool {
    ANY_BEFORE.load(Ordering::Relaxed)
}

/// Bytes that the device's pools had handed out before the recording.
pub(in crate::record) fn before(device: Device) -> u64 {
    let Device::Cuda(ordinal) = device else { return 0 };
    BEFORE.get(ordinal as usize).map_or(0, |before| before.load(Ordering::Relaxed))
}

fn total_of(device: Device) -> Option<&'static AtomicU64> {
    let Device::Cuda(ordinal) = device else { return None };
    TOTALS.get(ordinal as usize)
}

/// Calls `ask` for the device's total memory, once.
pub(crate) fn know_total(device: Device, ask: impl FnOnce() -> Option<u64>) {
    if let Some(total) = total_of(device).filter(|total| total.load(Ordering::Relaxed) == 0) {
        total.store(ask().filter(|bytes| *bytes > 0).unwrap_or(UNTOLD), Ordering::Relaxed);
    }
}

/// Total memory of the device. Known from its first recorded block on.
pub(crate) fn total_at_first(device: Device) -> Option<u64> {
    let total = total_of(device)?.load(Ordering::Relaxed);
    Some(total).filter(|total| ![0, UNTOLD].contains(total))
}
