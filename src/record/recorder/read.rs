//! Reads the ledgers under their locks, as memtrace's own work: the copies are allocated through the watched allocator,
//! and to record these allocations would deadlock.

use std::time::Instant;

use memtrace_core::snapshot::{Device, MemoryStats};

#[cfg(feature = "metrics")]
use super::super::ledger::windows::ScopeBytes;
use super::locked::{slot_as_it_is, slot_of};
use super::outside::outside;
use super::slots::{ACTIVE, devices};
use crate::record::ledger::{Cursor, Ledger, LedgerCopy, LogPart, Outside, Overwritten};
use crate::record::uses::{self, UseCopy, UseCursor};

/// Counters of a device; `None` if it has no ledger.
pub(crate) fn stats(device: Device) -> Option<MemoryStats> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    let Outside { below_threshold, base } = outside(device, ledger);
    Some(MemoryStats { below_threshold, ..ledger.stats(base) })
}

/// Counters and peak of a device, and the bytes of its scopes.
#[cfg(feature = "metrics")]
pub(crate) fn gauges(device: Device) -> Option<(DeviceCopy, Vec<ScopeBytes>)> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    Some((device_copy(device, uses::end(), ledger, |base| ledger.copy_counters(base)), ledger.scope_bytes()))
}

/// The maximum of live bytes on a device since the scope with this instance number was entered.
#[cfg(feature = "tracing")]
pub(crate) fn peak_since(device: Device, instance: u64) -> Option<u64> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    ledger.peak_since(instance, outside(device, ledger).base)
}

pub(crate) fn reset_peak(device: Device) {
    if let Some(ledger) = slot_of(device).as_mut().and_then(|slot| slot.as_mut()) {
        ledger.reset_peak();
    }
}

/// A copy of one device's ledger, and the bytes below the threshold at that moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceCopy {
    pub(crate) ledger: LedgerCopy,
    pub(crate) below_threshold: u64,
    pub(crate) uses: UseCopy,
}

/// Copies all ledgers of the recording that began, or was restarted, at this moment. Empty if another recording is
/// active.
pub(crate) fn copies(began: Instant) -> Vec<(Device, DeviceCopy)> {
    // The lock is held, so that no recording begins or ends meanwhile.
    let _active = ACTIVE.lock();
    devices().filter_map(|device| copy(device, began).map(|copy| (device, copy))).collect()
}

fn copy(device: Device, began: Instant) -> Option<DeviceCopy> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref().filter(|ledger| ledger.began == began)?;
    Some(device_copy(device, UseCursor::default(), ledger, |base| ledger.copy(base)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    Counters,
    Scopes,
    /// Includes the live blocks and the blocks of the peak.
    Whole,
}

/// The end of a device's log, with the ledger's state at that moment.
pub(crate) fn log_end(device: Device, detail: Detail, uses: UseCursor) -> Option<(Cursor, DeviceCopy)> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    let copy = device_copy(device, uses, ledger, |base| match detail {
        Detail::Counters => ledger.copy_counters(base),
        Detail::Scopes => ledger.copy_scopes(base),
        Detail::Whole => ledger.copy_state(base),
    });
    Some((ledger.end(), copy))
}

/// Appends up to `limit` records of a device's log, from `cursor` to `end`, to `out`. These records are already in the
/// ledger; heap events that still wait come after them.
pub(crate) fn read_log(
    device: Device,
    cursor: &mut Cursor,
    end: &Cursor,
    limit: usize,
    out: &mut LogPart,
) -> Result<(), Overwritten> {
    let Some(slot) = slot_as_it_is(device) else { return Ok(()) };
    slot.as_ref().map_or(Ok(()), |ledger| ledger.copy_log(cursor, end, limit, out))
}

/// Moves the cursor to `end` without reading records and marks.
pub(crate) fn skip_log(device: Device, cursor: &mut Cursor, end: &Cursor, out: &mut LogPart) {
    let Some(slot) = slot_as_it_is(device) else { return };
    if let Some(ledger) = slot.as_ref() {
        ledger.skip_log(cursor, end, out);
    }
}

fn device_copy(device: Device, uses: UseCursor, ledger: &Ledger, copy: impl FnOnce(u64) -> LedgerCopy) -> DeviceCopy {
    let Outside { below_threshold, base } = outside(device, ledger);
    DeviceCopy { ledger: copy(base), below_threshold, uses: uses::copied(device, uses) }
}
