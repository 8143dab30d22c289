//! Reports allocations and frees of all hooks to the recorder.

use std::ffi::c_int;
use std::panic::catch_unwind;

use memtrace_core::snapshot::{Device, OutOfMemory};

use super::attention::is_recording;
use super::driver::{DEINITIALIZED, OUT_OF_MEMORY, SUCCESS};
use super::types::{Class, FreeRequest, Outcome, Stream};
use super::{device, gone, pools, query, segments, streams};
use crate::errno::KeepErrno;
use crate::record::device_memory::{self, AskedSegment, DeviceFree};
use crate::record::measure::{self, Space};
use crate::record::{EventSite, event_site, gates, guard, heap, recorder, thread, ticks};

/// Reports an allocation, or one that was refused for lack of memory.
pub(super) fn notify_alloc(outcome: &Outcome) {
    notify_alloc_at(outcome, None);
}

/// Reports an allocation. `at` is the site that requested the memory, or `None` for the current site. The scopes are
/// always the current ones.
pub(super) fn notify_alloc_at(outcome: &Outcome, at: Option<EventSite>) {
    if !is_recording() || guard::state() & guard::OWN != 0 {
        return;
    }
    // The stack is taken outside of `catch_unwind`, whose frames would be in it.
    let own = guard::own_work();
    let site = match at {
        Some(site) => EventSite { context: guard::context(), thread: thread::number(), ..site },
        None => site_here(),
    };
    let act = || if outcome.result == SUCCESS { record(outcome, site) } else { note_refusal(outcome, site) };
    // Nothing here panics. If it did, the panic must not reach the program.
    let _ = catch_unwind(act);
    drop(own);
    let _ = catch_unwind(|| gone::free_since(outcome.place.ended));
    if outcome.result == OUT_OF_MEMORY {
        // A refusal may cause a dump, which writes files and so changes `errno`.
        let _errno = KeepErrno::new();
        let refused = |device| heap::refused(device, outcome.size as usize);
        let _ = catch_unwind(|| outcome.place.device.map(refused));
    }
}

/// The current site; the stack is taken only if a recording or a measurement needs it.
pub(super) fn site_here() -> EventSite {
    let measuring = gates::any_measurement() && measure::may_concern_this_thread();
    if measuring || gates::records_device_memory() { event_site::alloc_site(measuring) } else { EventSite::default() }
}

#[cold]
fn note_refusal(outcome: &Outcome, site: EventSite) {
    let Some(device) = outcome.place.device else { return };
    let (device_free, device_total) = query::asked(&outcome.place).unzip();
    let EventSite { stack, context, thread, .. } = site;
    let (size, time_ns) = (outcome.size, 0);
    let oom = OutOfMemory { time_ns, size, device_free, device_total, stack, context, thread };
    device_memory::refused(device, oom);
}

fn record(outcome: &Outcome, mut site: EventSite) {
    let Outcome { address, size, stream, place, took, .. } = *outcome;
    site.memory = outcome.class.memory();
    if stream != Stream::NONE {
        // Default streams have the same handles in every context. Other streams are distinguished by their handles.
        let context = if stream.is_special() { place.context } else { 0 };
        site.stream = streams::number(context, stream, site.thread);
    }
    let Some(device) = outcome.device() else { return device_memory::on_unplaced() };
    recorder::know_total(device, || Some(query::asked(&place)?.1));
    let ask = || match segments::segment_of(address, size, site.memory) {
        Some(answer) if device::ended() == place.ended => AskedSegment::Known(answer),
        _ if gone::is_gone(device, address) => AskedSegment::Gone,
        Some(answer) => AskedSegment::Known(answer),
        None => AskedSegment::Unreported,
    };
    device_memory::on_alloc(device, device_memory::NewBlock { address, size, site, took }, ask);
}

/// A free that was reported before the driver call. `None` for memtrace's own work, or if nothing is recorded.
#[derive(Debug)]
pub(super) struct PendingFree(Option<ReportedFree>);

#[derive(Debug)]
struct ReportedFree {
    taking: DeviceFree,
    measured: Option<measure::MeasuredFree>,
    class: Class,
    began: u64,
    /// How many contexts had ended before the driver call.
    ended: u64,
}

/// Reports a free. Must be called before the driver call.
pub(super) fn notify_free(request: FreeRequest) -> PendingFree {
    if !is_recording() || guard::state() & guard::OWN != 0 {
        return PendingFree::NONE;
    }
    let ended = device::ended();
    let (taking, measured) = take(&request);
    PendingFree(Some(ReportedFree { taking, measured, class: request.class, began: ticks::now(), ended }))
}

fn take(request: &FreeRequest) -> (DeviceFree, Option<measure::MeasuredFree>) {
    let _own = guard::own_work();
    let of_pool = || catch_unwind(|| is_of_host_pool(request.address)).unwrap_or(false);
    let is_pinned = request.class.is_pinned() || of_pool();
    let take = || match device_memory::before_free(is_pinned, request.address) {
        DeviceFree::Unknown if recorder::had_blocks_before() && !is_pinned => query::pool_block(request.address)
            .map_or(DeviceFree::Unknown, |(ordinal, size)| {
                device_memory::before_free_from_pool(Device::Cuda(ordinal), request.address, size)
            }),
        taking => taking,
    };
    let taking = catch_unwind(take).unwrap_or(DeviceFree::Unknown);
    let measured =
        || gates::any_measurement().then(|| take_measured(request.address, is_pinned, taking.known())).flatten();
    (taking, catch_unwind(measured).unwrap_or(None))
}

/// Whether a pool of host memory has the block. Such a block is freed by the same calls as device memory, so the call
/// does not show it.
fn is_of_host_pool(address: u64) -> bool {
    pools::has_host_pools() && (device_memory::has(Device::Pinned, address) || measure::knows(Space::Pinned, address))
}

fn take_measured(address: u64, is_pinned: bool, known: Option<(Device, u64)>) -> Option<measure::MeasuredFree> {
    let space = if is_pinned { Space::Pinned } else { Space::Device };
    let of_pool = || query::pool_block(address).map(|(ordinal, size)| (Device::Cuda(ordinal), size));
    // Query the driver only if a measurement is active on this thread, and neither a ledger nor a measurement knows the
    // block.
    let must_query = known.is_none() && guard::state() & guard::MEASURING != 0 && !measure::knows(space, address);
    let known = if must_query && space == Space::Device { of_pool() } else { known };
    measure::on_free(space, address, known)
}

impl PendingFree {
    pub(super) const NONE: Self = Self(None);

    /// Handles the driver's result. If the driver refused the free, the block is live again.
    pub(super) fn finish(self, result: c_int) {
        let Some(ReportedFree { taking, measured, class, began, ended }) = self.0 else { return };
        finish(result, taking, measured, ticks::now().saturating_sub(began));
        // The driver may refuse a free because the block was freed with its context.
        let _ = catch_unwind(|| gone::free_since(ended));
        // Memory outside of pools returns to the device at once.
        if class == Class::Classic {
            segments::settle(result);
        }
    }
}

fn finish(result: c_int, taking: DeviceFree, measured: Option<measure::MeasuredFree>, took: u64) {
    if result == DEINITIALIZED {
        return;
    }
    let _own = guard::own_work();
    let _ = catch_unwind(|| match result {
        SUCCESS => device_memory::freed(taking, took),
        _ => {
            device_memory::free_was_refused(taking);
            if let Some(taken) = measured {
                measure::undo_free(taken);
            }
        }
    });
}
