//! Applies heap events to the CPU's ledger, in the order of the calls.

use memtrace_core::snapshot::Device;

use super::outside::keep_counters;
use crate::record::event_site::EventSite;
use crate::record::gates::epoch;
use crate::record::ledger::moment::Moment;
use crate::record::ledger::{Ledger, LedgerFree, sampling};
use crate::record::untraced;

/// A block that was allocated. `size` decides whether it is recorded; `asked` is the recorded size.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewBlock {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) asked: u64,
    pub(super) site: EventSite,
}

/// Enters a block that was selected with this sampling interval. Returns whether it was entered.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn enter(slot: &mut Option<Ledger>, block: NewBlock, interval: usize, moment: &impl Moment) -> bool {
    let NewBlock { address, size, asked, site } = block;
    // The gate or the sampling decision may come from an earlier session.
    let takes = |ledger: &&mut Ledger| ledger.takes(size) && ledger.is_sampled_at(interval as u64);
    let Some(ledger) = slot.as_mut().filter(takes) else { return false };
    // Weights need a size that is known at the free, too: `size`. The sample is an estimate anyway.
    let entered = ledger.alloc_at(address, if interval == 0 { asked } else { size }, site, moment);
    keep_counters(Device::Cpu, ledger);
    if entered && ledger.samples(size) {
        sampling::enter(address);
    }
    entered
}

/// Takes a block out of the ledger. A block that the ledger does not have is from before the recording or, under
/// sampling, may have been left out. Under sampling, the caller subtracts such a block from the untraced counters.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn take_out(
    slot: &mut Option<Ledger>,
    address: u64,
    size: u64,
    site: EventSite,
    moment: &impl Moment,
) -> LedgerFree {
    let Some(ledger) = slot.as_mut().filter(|ledger| ledger.takes(size)) else { return LedgerFree::NotRecorded };
    if let Some(held) = ledger.free_at(address, site, moment) {
        if ledger.samples(held.size()) {
            sampling::leave(address);
        }
        return LedgerFree::Recorded(held, epoch());
    }
    if ledger.samples(size) {
        // From before the recording, or left out of the sample: it is unknown which.
        return LedgerFree::NotRecorded;
    }
    ledger.free_unknown_at(address, size, site, moment);
    // Under the lock: a reader of both accounts must find the block in exactly one of them.
    untraced::subtract(size);
    LedgerFree::FromBefore(epoch())
}

/// Undoes [`take_out`]. If another recording began meanwhile, the block does not enter it, and counts as untraced.
pub(super) fn put_back(slot: &mut Option<Ledger>, freed: LedgerFree, address: u64, size: u64) {
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
