//! The current recording: one ledger per device, each behind its own lock, and the entry points of the hooks.

mod devices;
mod read;
mod slots;
mod state;

use std::sync::atomic::Ordering;

use memtrace_core::snapshot::{ContextId, Device};

pub(crate) use self::devices::cuda_devices;
pub(super) use self::devices::{active_devices, with_ledger, with_ledger_there};
#[cfg(feature = "metrics")]
pub(crate) use self::read::gauges;
pub(super) use self::read::keep_counters;
#[cfg(feature = "tracing")]
pub(crate) use self::read::peak_since;
pub(crate) use self::read::{Detail, DeviceCopy, copies, log_end, read_log, reset_peak, skip_log, stats};
use self::slots::{ACTIVE_DEVICES, DEVICES, Slot, index_of};
pub(super) use self::slots::{before, has_place_for};
pub(crate) use self::slots::{devices, had_blocks_before};
pub(super) use self::state::{RecorderLocks, abandon, wants, wants_all};
pub(crate) use self::state::{is_recording, is_taken, restart, start, stop, switch, was_forked};
use super::event_site::EventSite;
use super::event_site::free_site;
use super::gates::epoch;
use super::ledger::Ledger;
#[cfg(feature = "candle")]
use super::ledger::graph_nodes::HandedOverNode;
use super::ledger::live::LiveBlock;
use super::ledger::sampling;
use super::{BlockLabel, guard, thread, untraced};

/// Enters a block, chosen at this sampling interval, into the CPU's ledger; returns whether it was entered. Of the two sizes the
/// first one decides, the second one is recorded.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn on_heap_alloc(address: u64, size: u64, asked: u64, site: EventSite, interval: usize) -> bool {
    let mut slot = DEVICES[0].lock();
    // The gate or the sampling decision may be that of an earlier session.
    let takes = |ledger: &&mut Ledger| ledger.takes(size) && ledger.is_sampled_at(interval as u64);
    let Some(ledger) = slot.as_mut().filter(takes) else { return false };
    // A sample is an estimate anyway, and its weights go by the size that a free finds again.
    let entered = ledger.alloc(address, if interval == 0 { asked } else { size }, site);
    keep_counters(Device::Cpu, ledger);
    if entered && ledger.samples(size) {
        sampling::enter(address);
    }
    entered
}

/// A heap free as the CPU's ledger saw it: what undoes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LedgerFree {
    /// The ledger held the block, in the recording with this epoch.
    Recorded(LiveBlock, u64),
    /// The block is from before the recording with this epoch. The free is logged, and the untraced counters went down.
    FromBefore(u64),
    /// No recording of such blocks, or the sample left this one out.
    NotRecorded,
}

/// Takes a heap block out of the CPU's ledger. An unknown block is one from before the recording, unless a sample is
/// recorded: then it may as well have been left out, and stays in the untraced counters.
#[inline(always)]
pub(crate) fn on_heap_free(address: u64, size: u64) -> LedgerFree {
    let site = free_site();
    let mut slot = DEVICES[0].lock();
    let Some(ledger) = slot.as_mut().filter(|ledger| ledger.takes(size)) else { return LedgerFree::NotRecorded };
    if let Some(held) = ledger.free(address, site) {
        if ledger.samples(held.size()) {
            sampling::leave(address);
        }
        return LedgerFree::Recorded(held, epoch());
    }
    if ledger.samples(size) {
        // From before the recording or left out of the sample: unknown.
        return LedgerFree::NotRecorded;
    }
    ledger.free_unknown(address, size, site);
    // Under the lock: a reader of both accounts must find the block in exactly one.
    untraced::subtract(size);
    LedgerFree::FromBefore(epoch())
}

/// Undoes [`on_heap_free`]. In a recording that began meanwhile, the block is one from before.
pub(crate) fn undo_heap_free(freed: LedgerFree, address: u64, size: u64) {
    let mut slot = DEVICES[0].lock();
    let now = epoch();
    let kept = match (freed, slot.as_mut()) {
        (LedgerFree::Recorded(held, then), Some(ledger)) if then == now => {
            let block = held.block();
            let kept = ledger.undo_free(&block);
            if kept && ledger.samples(block.size) {
                sampling::enter(block.address);
            }
            kept
        }
        (LedgerFree::FromBefore(then), Some(ledger)) if then == now => {
            ledger.undo_free_unknown(address, size);
            false
        }
        _ => false,
    };
    if !kept {
        untraced::add(size);
    }
}

/// See [`naming::name`](super::naming::name).
pub(crate) fn name(device: Option<Device>, address: u64, label: BlockLabel<'_>) -> bool {
    let in_slot = |slot: &Slot| slot.lock().as_mut().is_some_and(|ledger| ledger.name(address, label));
    match device {
        Some(device) => index_of(device).and_then(|index| DEVICES.get(index)).is_some_and(in_slot),
        None => is_recording() && DEVICES.iter().any(in_slot),
    }
}

/// Keeps the order in which a backward pass of this thread goes through a graph, if the device is recorded.
#[cfg(feature = "candle")]
pub(crate) fn hand_over(device: Device, nodes: impl Iterator<Item = HandedOverNode>) {
    let _own = guard::own_work();
    let thread = thread::number();
    let mut slot = index_of(device).and_then(|index| DEVICES.get(index)).map(Slot::lock);
    if let Some(ledger) = slot.as_mut().and_then(|slot| slot.as_mut()) {
        ledger.hand_over(thread, nodes);
    }
}

pub(crate) fn on_scope(enter: bool, instance: u64, context: ContextId) {
    // A signal handler that allocates must not wait for the thread that it interrupted.
    let _own = guard::own_work();
    let thread = thread::number();
    let mut active = 1;
    for (index, device) in DEVICES.iter().enumerate() {
        if active & (1 << index) == 0 {
            continue;
        }
        let mut slot = device.lock();
        if index == 0 {
            active |= ACTIVE_DEVICES.load(Ordering::Relaxed);
        }
        if let Some(ledger) = slot.as_mut() {
            match enter {
                true => ledger.enter_scope(instance, context, thread),
                false => ledger.exit_scope(instance, context, thread),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use memtrace_core::snapshot::Settings;

    use super::*;

    #[test]
    fn a_block_below_the_sessions_threshold_is_not_taken_whatever_gate_let_it_through() {
        let settings = Settings { min_size: 65_536, ..Settings::default() };
        // Another test of this process may be recording.
        let began = Instant::now();
        while !start(&settings, began, Vec::new) {
            std::thread::yield_now();
        }
        assert!(!on_heap_alloc(0x1000, 2048, 2048, EventSite::default(), 0));
        // A block that another session's sampling chose.
        assert!(!on_heap_alloc(0x1000, 65_536, 65_536, EventSite::default(), 1 << 19));
        assert!(matches!(on_heap_free(0x1000, 2048), LedgerFree::NotRecorded));
        assert!(on_heap_alloc(0x2000, 65_536, 65_536, EventSite::default(), 0));
        assert!(matches!(on_heap_free(0x2000, 65_536), LedgerFree::Recorded(..)));
        assert!(matches!(on_heap_free(0x3000, 65_536), LedgerFree::FromBefore(_)));
        assert!(copies(began + Duration::from_nanos(1)).is_empty(), "of another recording");
        let (_, copy) = copies(began).remove(0);
        stop();
        assert_eq!((copy.ledger.records.len(), copy.ledger.live.len()), (3, 0));
        untraced::add(65_536);
    }
}
