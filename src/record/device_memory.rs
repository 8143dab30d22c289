//! Memory of devices other than the CPU: their ledgers come into being with their first block.

use std::sync::atomic::{AtomicU64, Ordering};

use super::here::{self, free_site};
use super::ledger::Ledger;
use super::memory::{OwnVec, System};
use super::recorder;
use super::segments::{Asked, Segments, Told};
use super::site::Site;
use super::{gates, measure};
use crate::snapshot::{Block, Device, MemoryKind, OutOfMemory};

/// Blocks that were freed and that no ledger knew.
pub(crate) static UNKNOWN_FREES: AtomicU64 = AtomicU64::new(0);
/// Frees that were refused: what was to be freed is still there.
pub(crate) static REFUSED_FREES: AtomicU64 = AtomicU64::new(0);
/// Blocks that could not be entered, of devices that have no ledger.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

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

/// What came of looking for a block that is about to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taking {
    Recorded(Taken),
    /// It is from before the recording.
    FromBefore {
        device: Device,
        address: u64,
        size: u64,
        epoch: u64,
    },
    Unknown,
}

impl Taking {
    /// The device and the size of what is freed.
    pub(crate) fn known(&self) -> Option<(Device, u64)> {
        match self {
            Self::Recorded(taken) => Some((taken.device, taken.block.size)),
            Self::FromBefore { device, size, .. } => Some((*device, *size)),
            Self::Unknown => None,
        }
    }
}

/// A block that was allocated just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) site: Site,
    /// Ticks that the driver took.
    pub(crate) took: u64,
}

/// Pools of a device that have segments without blocks, 0 for memory of none; the driver is about to be asked of them.
pub(crate) fn pools_with_empty(device: Device) -> (OwnVec<u64>, Asked) {
    let empty = |ledger: &mut Ledger| ledger.segments.as_ref().map(|known| (known.pools_with_empty(), known.ask()));
    recorder::with_ledger_there(device, empty).flatten().unwrap_or((OwnVec::new_in(System), Asked::default()))
}

/// A pool has so many bytes now.
pub(crate) fn pool_has(device: Device, pool: u64, bytes: u64, asked: Asked) {
    let site = free_site();
    recorder::with_ledger_there(device, |ledger| ledger.pool_has(pool, bytes, asked, site));
}

/// Memory of no pool is given back once nothing is in it.
pub(crate) fn drop_empty_segments(device: Device) {
    let site = free_site();
    recorder::with_ledger_there(device, |ledger| ledger.drop_empty_segments(site));
}

fn measured(device: Device, new: New) -> New {
    if measure::may_concern_this_thread() {
        measure::on_alloc(device, new.address, new.size, new.site);
    } else {
        measure::on_unrelated(new.size);
    }
    New { site: here::site_for_session(new.site), ..new }
}

/// Enters a block. To be called once it is there. If its segment is not known, `ask` is called, without any lock.
pub(crate) fn on_alloc(device: Device, new: New, ask: impl FnOnce() -> Option<Told>) {
    let new = if gates::any_measurement() { measured(device, new) } else { new };
    if !gates::records_device_memory() {
        return;
    }
    let asked = recorder::with_ledger(device, |ledger| {
        let must_ask = |known: &&Segments| known.must_ask(new.address, new.site.memory);
        let asked = ledger.segments.as_ref().filter(must_ask).map(Segments::ask);
        if asked.is_none() {
            enter(device, ledger, new, false);
        }
        asked.map(|asked| (asked, gates::epoch()))
    });
    if let Some(Some((asked, epoch))) = asked {
        let told = ask();
        recorder::with_ledger_there(device, |ledger| {
            if epoch != gates::epoch() {
                // A recording that began meanwhile: to it the block is one from before.
                return;
            }
            let grew = match (told, &mut ledger.segments) {
                (Some(told), _) => ledger.segment(told, asked, new.site),
                (None, Some(known)) => known.cannot_tell(new.site.memory),
                (None, None) => false,
            };
            enter(device, ledger, new, grew);
        });
    }
    if asked.is_none() && recorder::wants(device) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

fn enter(device: Device, ledger: &mut Ledger, new: New, grew: bool) {
    let New { address, size, site, took } = new;
    ledger.calls.on_alloc(site.stack, site.context, took, grew);
    ledger.alloc(address, size, site);
    recorder::keep_counters(device, ledger);
}

/// Takes a block out, before anybody else can be given its address. Host memory is looked for among
/// what is pinned, other addresses everywhere else: no two devices share one.
pub(crate) fn before_free(pinned: bool, address: u64) -> Taking {
    let site = free_site();
    let may_have_it = |device: &Device| *device != Device::Cpu && (*device == Device::Pinned) == pinned;
    let taken = recorder::active_devices().filter(may_have_it).find_map(|device| {
        recorder::with_ledger_there(device, |ledger| {
            let block = ledger.free(address, site)?.block();
            Some(Taken { device, block, epoch: gates::epoch() })
        })?
    });
    taken.map_or(Taking::Unknown, Taking::Recorded)
}

/// No ledger has the block: it is of those that a pool had handed out before, and has this size there.
pub(crate) fn before_free_of_before(device: Device, address: u64, size: u64) -> Taking {
    let site = Site { memory: MemoryKind::Pool, ..free_site() };
    let freed = recorder::with_ledger(device, |ledger| {
        let left = recorder::before(device).saturating_sub(ledger.unknown_freed());
        let size = size.min(left);
        ledger.free_unknown(address, size, site);
        Taking::FromBefore { device, address, size, epoch: gates::epoch() }
    });
    freed.unwrap_or(Taking::Unknown)
}

/// It was freed; the driver took so many ticks.
pub(crate) fn freed(taking: Taking, took: u64) {
    match taking {
        Taking::Recorded(Taken { device, block, epoch }) => {
            recorder::with_ledger_there(device, |ledger| {
                if epoch == gates::epoch() {
                    ledger.calls.on_free(block.stack, block.context, took);
                }
            });
        }
        Taking::FromBefore { .. } | Taking::Unknown => {
            if recorder::wants_all() {
                UNKNOWN_FREES.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// It was not freed after all: it goes back.
pub(crate) fn free_was_refused(taking: Taking) {
    REFUSED_FREES.fetch_add(1, Ordering::Relaxed);
    // To a recording that began meanwhile it is a block from before.
    match taking {
        Taking::Recorded(Taken { device, block, epoch }) => {
            recorder::with_ledger_there(device, |ledger| epoch == gates::epoch() && ledger.undo_free(&block));
        }
        Taking::FromBefore { device, address, size, epoch } => {
            recorder::with_ledger_there(device, |ledger| {
                if epoch == gates::epoch() {
                    ledger.undo_free_unknown(address, size);
                }
            });
        }
        Taking::Unknown => {}
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
            blocks.try_reserve(ledger.live_len()).ok()?;
            blocks.extend(ledger.live_blocks().map(|block| (block.address, block.raw_seq())));
            (!blocks.is_empty()).then(|| Self { device, epoch: gates::epoch(), blocks })
        })?
    }

    /// Those that are gone were freed, all together; an address that has a new owner meanwhile is left alone.
    pub(crate) fn freed(mut self, is_gone: impl Fn(u64) -> bool) {
        self.blocks.retain(|(address, _)| is_gone(*address));
        let site = free_site();
        recorder::with_ledger_there(self.device, |ledger| {
            if self.epoch == gates::epoch() {
                self.blocks.iter().for_each(|(address, seq)| _ = ledger.free_if(*address, *seq, site));
            }
        });
    }
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
        let began = Instant::now();
        while !recorder::start(&settings, began, Vec::new) {
            std::thread::yield_now();
        }
        let before = LOST.load(Ordering::Relaxed);
        let new = |address| New { address, size: 10, site: Site::default(), took: 0 };
        on_alloc(Device::Cuda(7), new(0x1000), || None);
        on_alloc(Device::Cuda(32), new(0x2000), || None);
        let copies = recorder::copies(began);
        let copied =
            copies.iter().find(|(device, _)| *device == Device::Cuda(7)).map(|(_, copy)| copy.ledger.live.len());
        recorder::stop();
        assert_eq!((LOST.load(Ordering::Relaxed) - before, copied), (1, Some(1)));
    }
}
