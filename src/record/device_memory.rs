//! Allocs and frees of device memory. Every device except the CPU gets its ledger with its first block.

use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_core::snapshot::{Block, Device, MemoryKind, OutOfMemory};

use super::event_site::EventSite;
use super::event_site::{self, free_site};
use super::ledger::Ledger;
use super::ledger::segments::{QueryTicket, SegmentAnswer, Segments};
use super::memory::{OwnVec, System, with_room};
use super::recorder;
use super::{gates, measure, uses};

/// Number of frees of addresses at which no ledger had a block.
pub(crate) static UNKNOWN_FREES: AtomicU64 = AtomicU64::new(0);
pub(crate) static REFUSED_FREES: AtomicU64 = AtomicU64::new(0);
/// Number of blocks that were not recorded because there was no memory for their device's ledger.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);
/// Number of blocks of an unknown device, or of one beyond the number of devices that can have a ledger.
pub(crate) static UNPLACED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn refused(device: Device, oom: OutOfMemory) {
    recorder::with_ledger(device, |ledger| ledger.refused(oom));
}

/// A pending free: the driver has not answered it yet. Holds what is needed to undo the free if the driver refuses it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceFree {
    /// The free of a recorded block.
    Recorded {
        device: Device,
        block: Block,
        epoch: u64,
    },
    /// The free of a block that was allocated before the recording.
    FromBefore {
        device: Device,
        address: u64,
        size: u64,
        epoch: u64,
    },
    Unknown,
}

impl DeviceFree {
    /// Device and size, if known.
    pub(crate) fn known(&self) -> Option<(Device, u64)> {
        match self {
            Self::Recorded { device, block, .. } => Some((*device, block.size)),
            Self::FromBefore { device, size, .. } => Some((*device, *size)),
            Self::Unknown => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) site: EventSite,
    /// Duration of the driver call, in ticks of the processor's time counter.
    pub(crate) took: u64,
}

/// What the driver says of a new block's segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskedSegment {
    Known(SegmentAnswer),
    /// The driver does not report segments for this kind of memory.
    Unreported,
    /// The block is gone: meanwhile, it was freed with its CUDA context.
    Gone,
}

/// The pools of a device that have segments without blocks, where 0 stands for memory outside pools. Also returns a
/// ticket for querying the driver about these pools.
pub(crate) fn pools_with_empty(device: Device) -> (OwnVec<u64>, QueryTicket) {
    let empty = |ledger: &mut Ledger| ledger.segments.as_ref().map(|known| (known.pools_with_empty(), known.ticket()));
    recorder::with_ledger_there(device, empty).flatten().unwrap_or((OwnVec::new_in(System), QueryTicket::default()))
}

/// The driver reported the size of a pool.
pub(crate) fn pool_has(device: Device, pool: u64, bytes: u64, ticket: QueryTicket) {
    let site = free_site();
    recorder::with_ledger_there(device, |ledger| {
        ledger.change_segments(|segments, now| _ = segments.pool_has(pool, bytes, ticket, now, site));
    });
}

/// Drops empty segments outside pools: such memory is returned to the system as soon as it is empty.
pub(crate) fn drop_empty_segments(device: Device) {
    let site = free_site();
    recorder::with_ledger_there(device, |ledger| {
        ledger.change_segments(|segments, now| segments.drop_empty_of_none(now, site));
    });
}

/// Calls `act` with the ledger if `epoch` is still the number of the current recording.
fn with_ledger_still(device: Device, epoch: u64, act: impl FnOnce(&mut Ledger)) {
    recorder::with_ledger_there(device, |ledger| {
        if epoch == gates::epoch() {
            act(ledger);
        }
    });
}

fn measured(device: Device, new: NewBlock) -> NewBlock {
    if measure::may_concern_this_thread() {
        measure::on_alloc(device, new.address, new.size, new.site);
    } else {
        measure::on_unrelated(new.size);
    }
    NewBlock { site: event_site::site_for_session(new.site), ..new }
}

/// Enters a block after the driver returned it. If the block's segment is unknown, calls `ask` to query the driver. No
/// lock is held during that call.
pub(crate) fn on_alloc(device: Device, new: NewBlock, ask: impl FnOnce() -> AskedSegment) {
    let new = if gates::any_measurement() { measured(device, new) } else { new };
    if !gates::records_device_memory() {
        return;
    }
    let ticket = recorder::with_ledger(device, |ledger| {
        let needs_query = |known: &&Segments| known.needs_query(new.address, new.site.memory);
        let ticket = ledger.segments.as_ref().filter(needs_query).map(Segments::ticket);
        if ticket.is_none() {
            enter(device, ledger, new, false);
        }
        ticket.map(|ticket| (ticket, gates::epoch()))
    });
    if let Some(Some((ticket, epoch))) = ticket {
        let answer = ask();
        // If another recording began meanwhile, the block is older than that recording and does not enter it.
        with_ledger_still(device, epoch, |ledger| {
            let grew = match (answer, &mut ledger.segments) {
                (AskedSegment::Known(answer), _) => ledger.segment(answer, ticket, new.site),
                (AskedSegment::Unreported, Some(known)) => known.is_unreported(new.site.memory),
                (AskedSegment::Unreported, None) | (AskedSegment::Gone, _) => false,
            };
            enter(device, ledger, new, grew);
        });
    }
    if ticket.is_none() && recorder::wants(device) {
        let counter = if recorder::has_place_for(device) { &LOST } else { &UNPLACED };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a block whose device is not known.
#[cold]
pub(crate) fn on_unplaced() {
    if recorder::wants_all() {
        UNPLACED.fetch_add(1, Ordering::Relaxed);
    }
}

fn enter(device: Device, ledger: &mut Ledger, new: NewBlock, grew: bool) {
    let NewBlock { address, size, site, took } = new;
    ledger.calls.on_alloc(site.stack, site.context, took, grew);
    let entered = ledger.alloc(address, size, site);
    if uses::is_on()
        && entered
        && let Some(block) = ledger.live.get(address)
    {
        uses::entered(device, &block);
    }
    recorder::keep_counters(device, ledger);
}

/// Whether a device has a block at this address.
pub(crate) fn has(device: Device, address: u64) -> bool {
    recorder::with_ledger_there(device, |ledger| ledger.live.get(address).is_some()).unwrap_or(false)
}

/// Takes a block out of its ledger before the driver is called, because the driver may hand the block's address to
/// another thread at once. Pinned memory has host addresses; among all other devices, no two share an address.
pub(crate) fn before_free(pinned: bool, address: u64) -> DeviceFree {
    let site = free_site();
    let may_have_it = |device: &Device| *device != Device::Cpu && (*device == Device::Pinned) == pinned;
    let taken = recorder::active_devices().filter(may_have_it).find_map(|device| {
        recorder::with_ledger_there(device, |ledger| {
            let block = ledger.free(address, site)?.block();
            if uses::is_on() {
                uses::left(device, &block);
            }
            Some(DeviceFree::Recorded { device, block, epoch: gates::epoch() })
        })?
    });
    taken.unwrap_or(DeviceFree::Unknown)
}

/// Like [`before_free`], for a block that no ledger has: a pool handed it out before the recording.
pub(crate) fn before_free_from_pool(device: Device, address: u64, size: u64) -> DeviceFree {
    let site = EventSite { memory: MemoryKind::Pool, ..free_site() };
    let freed = recorder::with_ledger(device, |ledger| {
        let left = recorder::before(device).saturating_sub(ledger.unknown);
        let size = size.min(left);
        ledger.free_unknown(address, size, site);
        DeviceFree::FromBefore { device, address, size, epoch: gates::epoch() }
    });
    freed.unwrap_or(DeviceFree::Unknown)
}

/// The driver freed the block; the call took `took` ticks.
pub(crate) fn freed(taking: DeviceFree, took: u64) {
    match taking {
        DeviceFree::Recorded { device, block, epoch } => {
            with_ledger_still(device, epoch, |ledger| ledger.calls.on_free(block.stack, block.context, took));
        }
        DeviceFree::FromBefore { .. } | DeviceFree::Unknown => {
            if recorder::wants_all() {
                UNKNOWN_FREES.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The driver refused the free: the block goes back.
pub(crate) fn free_was_refused(taking: DeviceFree) {
    REFUSED_FREES.fetch_add(1, Ordering::Relaxed);
    // If another recording began meanwhile, the block is older than that recording and does not enter it.
    match taking {
        DeviceFree::Recorded { device, block, epoch } => {
            with_ledger_still(device, epoch, |ledger| {
                if ledger.undo_free(&block) && uses::is_on() {
                    uses::refused(device, &block);
                }
            });
        }
        DeviceFree::FromBefore { device, address, size, epoch } => {
            with_ledger_still(device, epoch, |ledger| ledger.undo_free_unknown(address, size));
        }
        DeviceFree::Unknown => {}
    }
}

/// A device's live blocks at one moment, to find those that end with their CUDA context.
#[derive(Debug)]
pub(crate) struct LiveOnDevice {
    device: Device,
    epoch: u64,
    /// The address of each block, and the log position of its alloc.
    blocks: OwnVec<(u64, u64)>,
}

impl LiveOnDevice {
    /// `None` if there are no blocks, or no memory for the list.
    pub(crate) fn on(device: Device) -> Option<Self> {
        recorder::with_ledger_there(device, |ledger| {
            let mut blocks = with_room(ledger.live.len())?;
            blocks.extend(ledger.live.iter().map(|block| (block.address, block.raw_seq())));
            (!blocks.is_empty()).then(|| Self { device, epoch: gates::epoch(), blocks })
        })?
    }

    /// Frees the blocks that are gone. A block whose position changed is a newer one at the same address, and stays.
    pub(crate) fn freed(mut self, is_gone: impl Fn(u64) -> bool) {
        self.blocks.retain(|(address, _)| is_gone(*address));
        let site = free_site();
        with_ledger_still(self.device, self.epoch, |ledger| {
            for (address, seq) in &self.blocks {
                if let Some(freed) = ledger.free_if(*address, *seq, site).filter(|_| uses::is_on()) {
                    uses::left(self.device, &freed.block());
                }
            }
        });
    }
}

/// Whether this device has a ledger without live blocks.
pub(crate) fn is_empty(device: Device) -> bool {
    recorder::with_ledger_there(device, |ledger| ledger.live.len() == 0) == Some(true)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use memtrace_core::snapshot::Settings;

    use super::*;

    #[test]
    fn blocks_of_a_device_beyond_all_are_counted_as_such() {
        let settings = Settings { min_size: 1 << 40, ..Settings::default() };
        // Another test of this process may be recording.
        let began = Instant::now();
        while !recorder::start(&settings, began, Vec::new) {
            std::thread::yield_now();
        }
        let counts = || [&UNPLACED, &LOST].map(|counter| counter.load(Ordering::Relaxed));
        let before = counts();
        let new = |address| NewBlock { address, size: 10, site: EventSite::default(), took: 0 };
        on_alloc(Device::Cuda(7), new(0x1000), || AskedSegment::Unreported);
        on_alloc(Device::Cuda(32), new(0x2000), || AskedSegment::Unreported);
        let copies = recorder::copies(began);
        let copied =
            copies.iter().find(|(device, _)| *device == Device::Cuda(7)).map(|(_, copy)| copy.ledger.live.len());
        recorder::stop();
        assert_eq!((counts(), copied), ([before[0] + 1, before[1]], Some(1)));
    }
}
