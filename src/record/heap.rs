//! Heap blocks: which account each one goes to.
//!
//! memtrace's own work → own counter; recorded → the CPU ledger; everything else → the untraced
//! counters, and with it small blocks that are not in a session's sample. A block is in exactly one of them at any time, so the sums always hold, also while a
//! session starts or ends on another thread. An open measurement sees blocks besides.

use std::sync::OnceLock;

use super::gates::{any_measurement, records_heap_block, watches_heap_block};
use super::live::foresee;
use super::measure::{Space, Taken};
use super::prefetch::prefetch;
use super::recorder::{self, Freed};
use super::{guard, here, measure, sampling, untraced};
use crate::snapshot::Device;

/// Blocks that allocators do not keep ready for the next request, but look at their neighbours.
const LARGE: usize = 1 << 10;

/// Where a freed block came from, in case the free has to be undone.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and a hook does not allocate")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// memtrace's own.
    Own,
    /// Not recorded, and no measurement open.
    Untraced,
    /// Looked for in the ledger and in measurements.
    Watched(Freed, Option<Taken>),
}

/// After an allocation succeeded: the whole of it if nobody watches such blocks; otherwise false, and
/// [`on_watched_alloc`] is to be called.
#[inline(always)]
pub(crate) fn on_unwatched_alloc(size: usize) -> bool {
    guard::state() == 0 && !watches_heap_block(size) && untraced::add_at_once(size as u64, 1)
}

/// Before a block is freed for good: the whole of it if nobody watches such blocks; otherwise false, and
/// [`on_watched_dealloc`] is to be called.
#[inline(always)]
pub(crate) fn on_unwatched_dealloc(size: usize) -> bool {
    guard::state() == 0 && !watches_heap_block(size) && untraced::add_at_once(size as u64, -1)
}

/// Before a block is freed, perhaps to be put back.
#[inline]
pub(crate) fn on_free(address: usize, size: usize) -> Account {
    if guard::state() == 0 && !watches_heap_block(size) {
        untraced::subtract(size as u64);
        return Account::Untraced;
    }
    on_watched_free(address as u64, size)
}

/// A reallocation failed: the block is still there.
#[cold]
pub(crate) fn undo_free(address: usize, size: usize, account: Account) {
    let (address, size) = (address as u64, size as u64);
    match account {
        Account::Own => untraced::add_own(size),
        Account::Untraced => untraced::add(size),
        Account::Watched(freed, measured) => {
            let _own = guard::own_work();
            if let Some(taken) = measured {
                measure::undo_free(taken);
            }
            recorder::undo_heap_free(freed, address, size);
        }
    }
}

/// Called with the size of each allocation that failed; the first to ask is served.
static ON_REFUSAL: OnceLock<fn(Device, usize)> = OnceLock::new();

pub(crate) fn on_refusal(call: fn(Device, usize)) {
    let _ = ON_REFUSAL.set(call);
}

/// A request could not be served.
#[cold]
pub(crate) fn refused(device: Device, size: usize) {
    if let Some(call) = ON_REFUSAL.get() {
        call(device, size);
    }
}

/// Gives the block back, so that whoever calls this last has no frame of its own meanwhile.
#[inline(never)]
pub(crate) fn on_watched_alloc(block: *mut u8, size: usize) -> *mut u8 {
    enter(block.addr() as u64, size);
    block
}

#[inline(always)]
fn enter(address: u64, size: usize) {
    let state = guard::state();
    if state & guard::PROBING != 0 {
        guard::set(guard::PROBING, false);
    }
    if state & guard::OWN != 0 {
        return untraced::add_own(size as u64);
    }
    if state & guard::NEW != 0 {
        guard::set(guard::NEW, false);
    }
    let interval = sampling::interval();
    let recording = records_heap_block(size) && !sampling::leaves_out(size, interval);
    let measured = any_measurement();
    if !(measured || recording) {
        return untraced::add(size as u64);
    }
    let _own = guard::own_work();
    foresee(address);
    let measuring = measured && measure::may_concern_this_thread();
    if measured && !measuring {
        measure::on_unrelated(size as u64);
    }
    if !(measuring || recording) {
        return untraced::add(size as u64);
    }
    let site = here::alloc_site(measuring);
    if measuring {
        measure::on_alloc(Device::Cpu, address, size as u64, site);
    }
    let site = if measured { here::site_for_session(site) } else { site };
    if !(recording && recorder::on_heap_alloc(address, size as u64, site, interval)) {
        untraced::add(size as u64);
    }
}

/// Apart from [`on_watched_free`], because an account is large and nobody wants it here.
#[inline(never)]
pub(crate) fn on_watched_dealloc(address: usize, size: usize) {
    if size >= LARGE {
        // What most allocators will look at, once they are asked: before the block and after it.
        prefetch(address.wrapping_sub(size_of::<[usize; 2]>()));
        prefetch(address.wrapping_add(size));
    }
    take_out(address as u64, size);
}

#[inline(never)]
fn on_watched_free(address: u64, size: usize) -> Account {
    take_out(address, size)
}

#[inline(always)]
fn take_out(address: u64, size: usize) -> Account {
    let state = guard::state();
    if state & guard::OWN != 0 {
        untraced::subtract_own(size as u64);
        return Account::Own;
    }
    if state & guard::NEW != 0 {
        measure::on_new_thread(address);
    }
    let recorded = records_heap_block(size) && !sampling::was_left_out(address, size);
    if !recorded && !any_measurement() {
        untraced::subtract(size as u64);
        return Account::Untraced;
    }
    let _own = guard::own_work();
    foresee(address);
    let size = size as u64;
    let known = Some((Device::Cpu, size));
    let measured = if any_measurement() { measure::on_free(Space::Heap, address, known) } else { None };
    let freed = if recorded { recorder::on_heap_free(address, size) } else { Freed::NotRecorded };
    if matches!(freed, Freed::NotRecorded) {
        untraced::subtract(size);
    }
    Account::Watched(freed, measured)
}
