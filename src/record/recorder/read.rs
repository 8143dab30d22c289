//! What the ledgers hold, read under their locks.

use std::time::Instant;

use super::devices::{devices, slot_of};
use super::{ACTIVE, before, lock};
use crate::record::ledger::{Cursor, Ledger, LedgerCopy, LogPart};
use crate::record::{fork, guard, untraced};
use crate::snapshot::{Device, MemoryStats};

/// Counters of a device, if it is being recorded.
pub(crate) fn stats(device: Device) -> Option<MemoryStats> {
    fork::watch();
    let _own = guard::own_work();
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    let (below, base) = outside(device, ledger);
    Some(MemoryStats { below_threshold: below, ..ledger.stats(base) })
}

pub(crate) fn reset_peak(device: Device) {
    fork::watch();
    let _own = guard::own_work();
    if let Some(ledger) = slot_of(device).as_mut().and_then(|slot| slot.as_mut()) {
        ledger.reset_peak();
    }
}

/// One device's ledger, copied, and what was live outside it at that moment.
#[derive(Debug)]
pub(crate) struct DeviceCopy {
    pub(crate) ledger: LedgerCopy,
    pub(crate) below_threshold: u64,
    /// Bytes that were live when the recording began and still are.
    pub(crate) not_recorded: u64,
}

/// All ledgers of the recording that began, or begins anew, at this moment; none of them if another one is under way.
pub(crate) fn copies(began: Instant) -> Vec<(Device, DeviceCopy)> {
    // The copies go through the watched allocator: were they recorded, they would wait for these locks.
    let _own = guard::own_work();
    // Nobody begins or ends a recording meanwhile.
    let _active = lock(&ACTIVE);
    devices().filter_map(|device| copy(device, began).map(|copy| (device, copy))).collect()
}

fn copy(device: Device, began: Instant) -> Option<DeviceCopy> {
    let slot = slot_of(device)?;
    let ledger = slot.as_ref().filter(|ledger| ledger.began() == began)?;
    Some(device_copy(device, ledger, |base| ledger.copy(base)))
}

/// What a device's log has gained since `cursor`, at most `limit` records, added to `out`; if that was
/// all, the counters of the same moment, with everything live and at the peak if `whole`.
pub(crate) fn read_log(
    device: Device,
    cursor: &mut Cursor,
    limit: usize,
    whole: bool,
    out: &mut LogPart,
) -> Option<Option<DeviceCopy>> {
    let _own = guard::own_work();
    let slot = slot_of(device)?;
    let ledger = slot.as_ref()?;
    if !ledger.copy_log(cursor, limit, out) {
        return Some(None);
    }
    Some(Some(device_copy(
        device,
        ledger,
        |base| if whole { ledger.copy_state(base) } else { ledger.copy_counters(base) },
    )))
}

fn device_copy(device: Device, ledger: &Ledger, copy: impl FnOnce(u64) -> LedgerCopy) -> DeviceCopy {
    let (below_threshold, base) = outside(device, ledger);
    let not_recorded = base - ledger.unknown_freed().min(base);
    DeviceCopy { ledger: copy(base), below_threshold, not_recorded }
}

/// Bytes outside the ledger, read under its lock: (below the threshold, live at the start).
///
/// What is large, untraced and live now was live at the start, and so was what was freed since
/// without having been recorded. Of blocks of which only a sample is recorded that cannot be said: they are not in it.
fn outside(device: Device, ledger: &Ledger) -> (u64, u64) {
    if device != Device::Cpu {
        return (0, before(device));
    }
    let (below, all) = untraced::split_at(ledger.min_size());
    let large = ledger.sampling().interval().map_or(all, untraced::at_least);
    (below, large + ledger.unknown_freed())
}
