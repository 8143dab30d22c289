//! Memory of devices other than the CPU: their ledgers come into being with their first block.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ledger::Site;
use super::memory::OwnVec;
use super::recorder::{self, free_site};
use crate::snapshot::{Block, Device};

/// Blocks that were freed and that no ledger knew.
static UNKNOWN_FREES: AtomicU64 = AtomicU64::new(0);
/// Frees that were refused: what was to be freed is still there.
static REFUSED_FREES: AtomicU64 = AtomicU64::new(0);
/// Blocks that could not be entered, of devices that have no ledger.
static LOST: AtomicU64 = AtomicU64::new(0);

/// A block that was taken out of its account because it is about to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    device: Device,
    block: Block,
}

/// Enters a block. To be called once it is there.
pub(crate) fn on_alloc(device: Device, address: u64, size: u64, site: Site) {
    let entered = recorder::with_ledger(device, |ledger| ledger.alloc(address, size, site));
    if entered.is_none() && recorder::wants(device) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes a block out, before anybody else can be given its address. Host memory is looked for among
/// what is pinned, other addresses everywhere else: no two devices share one.
pub(crate) fn before_free(pinned: bool, address: u64) -> Option<Taken> {
    let site = free_site();
    let may_have_it = |device: &Device| *device != Device::Cpu && (*device == Device::Pinned) == pinned;
    recorder::active_devices().filter(may_have_it).find_map(|device| {
        let block = recorder::with_ledger_there(device, |ledger| ledger.free(address, site))??;
        Some(Taken { device, block })
    })
}

/// The block was freed, and no ledger had it.
pub(crate) fn freed_unknown() {
    if recorder::wants_all() {
        UNKNOWN_FREES.fetch_add(1, Ordering::Relaxed);
    }
}

/// It was not freed after all: it goes back.
pub(crate) fn free_was_refused(taken: Option<Taken>) {
    REFUSED_FREES.fetch_add(1, Ordering::Relaxed);
    if let Some(Taken { device, block }) = taken {
        recorder::with_ledger_there(device, |ledger| ledger.undo_free(&block));
    }
}

/// What is live on a device, to be asked about one by one: (address, position in the log).
pub(crate) fn live(device: Device) -> OwnVec<(u64, u64)> {
    recorder::with_ledger_there(device, |ledger| {
        let mut live = OwnVec::new_in(super::memory::System);
        if live.try_reserve(ledger.live_blocks().len()).is_ok() {
            live.extend(ledger.live_blocks().map(|block| (block.address, block.seq)));
        }
        live
    })
    .unwrap_or(OwnVec::new_in(super::memory::System))
}

/// Blocks of [`live`] are gone, all at once; an address that has a new owner meanwhile is left alone.
pub(crate) fn freed_together(device: Device, blocks: &[(u64, u64)]) {
    let site = free_site();
    recorder::with_ledger_there(device, |ledger| {
        for (address, seq) in blocks {
            ledger.free_if(*address, *seq, site);
        }
    });
}

pub(crate) fn unknown_frees() -> u64 {
    UNKNOWN_FREES.load(Ordering::Relaxed)
}

pub(crate) fn refused_frees() -> u64 {
    REFUSED_FREES.load(Ordering::Relaxed)
}

pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}
