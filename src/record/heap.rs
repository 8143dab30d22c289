//! Accounting of heap blocks. Every block is in exactly one account at any time, even while a session starts or ends on
//! another thread:
//!
//! - memtrace's own work is in the own counter
//! - recorded blocks are in the CPU ledger
//! - everything else is in the untraced counters, including small blocks that the sample left out
//!
//! Open measurements observe blocks in addition.

use std::sync::OnceLock;

use memtrace_core::snapshot::Device;

use super::gates::{any_measurement, records_heap_block, watches_heap_block};
use super::ledger::live::prefetch_slot;
use super::ledger::{LedgerFree, sampling};
use super::measure::{MeasuredFree, Space};
use super::prefetch::prefetch;
use super::recorder;
use super::{event_site, guard, measure, untraced};

/// Allocators cache freed blocks below this size. To free a larger block, they read and write the headers around it.
const LARGE: usize = 1 << 10;

/// The account that a freed block came from. It is used to undo the free if a reallocation fails.
#[expect(clippy::large_enum_variant, reason = "one exists at a time, and a hook must not allocate")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeapFree {
    Own,
    /// Not recorded, and no measurement was open.
    Untraced,
    /// The block was looked up in the ledger and in measurements.
    Watched(LedgerFree, Option<MeasuredFree>),
}

/// Accounts for an allocation that nobody observes. False if it may be observed: then call [`on_watched_alloc`].
#[inline(always)]
pub(crate) fn on_unwatched_alloc(size: usize) -> bool {
    guard::state() == 0 && !watches_heap_block(size) && untraced::add_at_once(size as u64, 1)
}

/// Accounts for a free that nobody observes. False if it may be observed: then call [`on_watched_dealloc`].
#[inline(always)]
pub(crate) fn on_unwatched_dealloc(size: usize) -> bool {
    guard::state() == 0 && !watches_heap_block(size) && untraced::add_at_once(size as u64, -1)
}

/// Accounts for a free that may still fail; see [`undo_free`].
#[inline]
pub(crate) fn on_free(address: usize, size: usize) -> HeapFree {
    if guard::state() == 0 && !watches_heap_block(size) {
        untraced::subtract(size as u64);
        return HeapFree::Untraced;
    }
    on_watched_free(address as u64, size)
}

/// The reallocation failed: puts the block back.
#[cold]
pub(crate) fn undo_free(address: usize, size: usize, account: HeapFree) {
    let (address, size) = (address as u64, size as u64);
    match account {
        HeapFree::Own => untraced::add_own(size),
        HeapFree::Untraced => untraced::add(size),
        HeapFree::Watched(freed, measured) => {
            let _own = guard::own_work();
            if let Some(taken) = measured {
                measure::undo_free(taken);
            }
            recorder::undo_heap_free(freed, address, size);
        }
    }
}

/// The function that is called with the device and size of each refused allocation. The first registration wins.
static ON_REFUSAL: OnceLock<fn(Device, usize)> = OnceLock::new();

pub(crate) fn on_refusal(call: fn(Device, usize)) {
    let _ = ON_REFUSAL.set(call);
}

#[cold]
pub(crate) fn refused(device: Device, size: usize) {
    if let Some(call) = ON_REFUSAL.get() {
        call(device, size);
    }
}

/// Returns the block, so that the hook can tail-call this function and has no frame in the recorded stack.
#[inline(never)]
pub(crate) fn on_watched_alloc(block: *mut u8, size: usize) -> *mut u8 {
    enter(block.addr() as u64, size, size);
    block
}

/// [`on_watched_alloc`] for allocators whose free does not pass the requested size. The requested size is only
/// recorded; everything else uses the size that the allocator gave. `errno` is preserved, because C programs read it
/// after an allocation. This is a C function, because `malloc` cannot tail-call a function that may unwind.
#[cfg(feature = "preload")]
#[inline(never)]
pub(crate) extern "C" fn on_watched_malloc(block: *mut u8, asked: usize, given: usize) -> *mut u8 {
    let _errno = crate::errno::KeepErrno::new();
    enter(block.addr() as u64, given, asked);
    block
}

#[inline(always)]
fn enter(address: u64, size: usize, asked: usize) {
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
    if any_measurement() {
        return enter_measured(address, size, recording, interval);
    }
    if !recording {
        return untraced::add(size as u64);
    }
    enter_recorded(address, size, asked, interval);
}

/// [`enter`] for a block that is recorded. It is a separate function in unoptimised builds, where each variable takes
/// stack space.
#[cfg_attr(not(debug_assertions), inline(always))]
fn enter_recorded(address: u64, size: usize, asked: usize, interval: usize) {
    let _own = guard::own_work();
    prefetch_slot(address);
    let site = event_site::alloc_site(false);
    if !recorder::on_heap_alloc(address, size as u64, asked as u64, site, interval) {
        untraced::add(size as u64);
    }
}

/// [`enter`] while a measurement is open. Out of line, so that it costs other recordings nothing.
#[cold]
#[inline(never)]
fn enter_measured(address: u64, size: usize, recording: bool, interval: usize) {
    let _own = guard::own_work();
    let measuring = measure::may_concern_this_thread();
    if !measuring {
        measure::on_unrelated(size as u64);
    }
    if !(measuring || recording) {
        return untraced::add(size as u64);
    }
    let site = event_site::alloc_site(measuring);
    if measuring {
        measure::on_alloc(Device::Cpu, address, size as u64, site);
    }
    let site = event_site::site_for_session(site);
    if !(recording && recorder::on_heap_alloc(address, size as u64, size as u64, site, interval)) {
        untraced::add(size as u64);
    }
}

/// [`on_watched_free`] without its result, which is large and is not needed here.
#[inline(never)]
pub(crate) fn on_watched_dealloc(address: usize, size: usize) {
    if size >= LARGE {
        // The allocator is about to read the headers before and after the block. They mostly miss the cache: fetch them
        // early.
        prefetch(address.wrapping_sub(size_of::<[usize; 2]>()));
        prefetch(address.wrapping_add(size));
    }
    take_out(address as u64, size, false);
}

#[inline(never)]
fn on_watched_free(address: u64, size: usize) -> HeapFree {
    take_out(address, size, true)
}

#[inline(always)]
fn take_out(address: u64, size: usize, may_be_undone: bool) -> HeapFree {
    let state = guard::state();
    if state & guard::OWN != 0 {
        untraced::subtract_own(size as u64);
        return HeapFree::Own;
    }
    if state & guard::NEW != 0 {
        measure::on_new_thread(address);
    }
    let recorded = records_heap_block(size) && !sampling::was_left_out(address, size);
    if !recorded && !any_measurement() {
        untraced::subtract(size as u64);
        return HeapFree::Untraced;
    }
    let _own = guard::own_work();
    prefetch_slot(address);
    let size = size as u64;
    let known = Some((Device::Cpu, size));
    let measured = if any_measurement() { measure::on_free(Space::Heap, address, known) } else { None };
    let freed = if recorded { recorder::on_heap_free(address, size, may_be_undone) } else { LedgerFree::NotRecorded };
    if matches!(freed, LedgerFree::NotRecorded) {
        untraced::subtract(size);
    }
    HeapFree::Watched(freed, measured)
}
