//! Memory of devices other than the CPU: their ledgers come into being with their first block.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ledger::Site;
use super::memory::{OwnVec, System};
use super::recorder::{self, free_site};
use crate::snapshot::{Block, Device, OutOfMemory};

/// Blocks that were freed and that no ledger knew.
static UNKNOWN_FREES: AtomicU64 = AtomicU64::new(0);
/// Frees that were refused: what was to be freed is still there.
static REFUSED_FREES: AtomicU64 = AtomicU64::new(0);
/// Blocks that could not be entered, of devices that have no ledger.
static LOST: AtomicU64 = AtomicU64::new(0);

/// An allocation was refused for lack of memory.
pub(crate) fn refused(device: Device, oom: OutOfMemory) {
    recorder::with_ledger(device, |ledger| ledger.refused(oom));
}

/// A block that was taken out of its account because it is about to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    device: Device,
    block: Block,
    epoch: u64,
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
        recorder::with_ledger_there(device, |ledger| {
            let block = ledger.free(address, site)?;
            Some(Taken { device, block, epoch: recorder::epoch() })
        })?
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
    if let Some(Taken { device, block, epoch }) = taken {
        // To a recording that began meanwhile it is a block from before.
        recorder::with_ledger_there(device, |ledger| epoch == recorder::epoch() && ledger.undo_free(&block));
    }
}

/// Blocks that are live on a device of a recording.
#[derive(Debug)]
pub(crate) struct Live {
    device: Device,
    epoch: u64,
    /// (address, position in the log).
    blocks: OwnVec<(u64, u64)>,
}

impl Live {
    /// `None` if there are none, or no memory for a list of them.
    pub(crate) fn on(device: Device) -> Option<Self> {
        recorder::with_ledger_there(device, |ledger| {
            let mut blocks = OwnVec::new_in(System);
            blocks.try_reserve(ledger.live_blocks().len()).ok()?;
            blocks.extend(ledger.live_blocks().map(|block| (block.address, block.seq)));
            (!blocks.is_empty()).then(|| Self { device, epoch: recorder::epoch(), blocks })
        })?
    }

    /// Those that are gone were freed, all together; an address that has a new owner meanwhile is left alone.
    pub(crate) fn freed(mut self, is_gone: impl Fn(u64) -> bool) {
        self.blocks.retain(|(address, _)| is_gone(*address));
        let site = free_site();
        recorder::with_ledger_there(self.device, |ledger| {
            if self.epoch == recorder::epoch() {
                self.blocks.iter().for_each(|(address, seq)| _ = ledger.free_if(*address, *seq, site));
            }
        });
    }
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::snapshot::Settings;

    #[test]
    fn blocks_of_a_device_beyond_all_are_lost_and_counted() {
        let settings = Settings { min_size: 1 << 40, ..Settings::default() };
        // Another test of this process may be recording.
        while !recorder::start(&settings, Instant::now()) {
            std::thread::yield_now();
        }
        let before = lost();
        on_alloc(Device::Cuda(7), 0x1000, 10, Site::default());
        on_alloc(Device::Cuda(32), 0x2000, 10, Site::default());
        let copied = recorder::copy(Device::Cuda(7)).map(|copy| copy.ledger.live.len());
        recorder::stop();
        assert_eq!((lost() - before, copied), (1, Some(1)));
    }
}
