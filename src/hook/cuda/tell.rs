//! What the recorder is told of an allocation or a free, wherever it came from.

use std::ffi::c_int;
use std::panic::catch_unwind;

use super::attention::watching;
use super::driver::{DEINITIALIZED, OUT_OF_MEMORY, SUCCESS};
use super::place::{context_of, device_of};
use super::words::{Class, Outcome, Release, Stream, Whose};
use super::{query, segments, streams};
use crate::errno::KeepErrno;
use crate::record::device_memory::{self, DeviceFree};
use crate::record::measure::{self, Space};
use crate::record::{EventSite, gates, guard, heap, here, recorder, thread, ticks};
use crate::snapshot::{Device, OutOfMemory};

/// To the recorder.
pub(super) fn tell_alloc(outcome: &Outcome) {
    tell_alloc_at(outcome, None);
}

/// The same for a block that was asked for elsewhere, and comes into being in the scopes of here.
pub(super) fn tell_alloc_at(outcome: &Outcome, at: Option<EventSite>) {
    if !gates::watches_device_memory() || guard::state() & guard::OWN != 0 {
        return;
    }
    // Outside of what follows, whose frames would only be in the way.
    let own = guard::own_work();
    let site = match at {
        Some(site) => EventSite { context: guard::context(), thread: thread::number(), ..site },
        None => site_here(),
    };
    let act = || if outcome.result == SUCCESS { record(outcome, site) } else { note_refusal(outcome, site) };
    // Nothing here panics; if it did, that must not reach the program.
    let _ = catch_unwind(act);
    drop(own);
    if outcome.result == OUT_OF_MEMORY {
        // A dump writes files.
        let _errno = KeepErrno::new();
        let _ = catch_unwind(|| heap::refused(device_refused(outcome), outcome.size as usize));
    }
}

/// A call that allocates was refused.
pub(super) fn tell_refusal(outcome: &Outcome) {
    if outcome.result == OUT_OF_MEMORY {
        tell_alloc(outcome);
    }
}

/// Here, as far as anybody wants to know.
pub(super) fn site_here() -> EventSite {
    let measuring = gates::any_measurement() && measure::may_concern_this_thread();
    if measuring || gates::records_device_memory() { here::alloc_site(measuring) } else { EventSite::default() }
}

#[cold]
fn note_refusal(outcome: &Outcome, site: EventSite) {
    let (device_free, device_total) = query::device_memory().unzip();
    let EventSite { stack, context, thread, .. } = site;
    let (size, time_ns) = (outcome.size, 0);
    let oom = OutOfMemory { time_ns, size, device_free, device_total, stack, context, thread };
    device_memory::refused(device_refused(outcome), oom);
}

/// The device of an allocation that was refused. There is no block that could be asked about, so a stream of
/// another device than the current one is not told apart.
fn device_refused(outcome: &Outcome) -> Device {
    let whose = if let Whose::Ordinal(_) = outcome.whose { outcome.whose } else { Whose::Streams };
    device_of(&Outcome { stream: Stream::NONE, whose, ..*outcome })
}

fn record(outcome: &Outcome, mut site: EventSite) {
    site.memory = outcome.class.memory();
    if outcome.stream != Stream::NONE {
        site.stream = streams::number(context_of(outcome.stream), outcome.stream, site.thread);
    }
    let device = device_of(outcome);
    let Outcome { address, size, took, .. } = *outcome;
    let ask = || segments::told(address, size, site.memory);
    device_memory::on_alloc(device, device_memory::NewBlock { address, size, site, took }, ask);
}

/// A free of which the recorder was told before the call, and is to be told what came of it.
#[derive(Debug)]
pub(super) struct Told(Option<Free>);

/// A free that is under way.
#[derive(Debug)]
struct Free {
    taking: DeviceFree,
    measured: Option<measure::MeasuredFree>,
    class: Class,
    began: u64,
}

/// To the recorder.
pub(super) fn tell_free(release: Release) -> Told {
    if !watching() || guard::state() & guard::OWN != 0 {
        return Told::NOTHING;
    }
    let (taking, measured) = take(&release);
    Told(Some(Free { taking, measured, class: release.class, began: ticks::now() }))
}

fn take(release: &Release) -> (DeviceFree, Option<measure::MeasuredFree>) {
    let _own = guard::own_work();
    let take = || {
        let pinned = release.class.is_pinned();
        match device_memory::before_free(pinned, release.address) {
            DeviceFree::Unknown if recorder::had_blocks_before() && !pinned => query::pool_block(release.address)
                .map_or(DeviceFree::Unknown, |(ordinal, size)| {
                    device_memory::before_free_from_pool(Device::Cuda(ordinal), release.address, size)
                }),
            taking => taking,
        }
    };
    let taking = catch_unwind(take).unwrap_or(DeviceFree::Unknown);
    let measured = || gates::any_measurement().then(|| take_measured(release, taking.known())).flatten();
    (taking, catch_unwind(measured).unwrap_or(None))
}

fn take_measured(release: &Release, known: Option<(Device, u64)>) -> Option<measure::MeasuredFree> {
    let address = release.address;
    let space = if release.class.is_pinned() { Space::Pinned } else { Space::Device };
    let of_pool = || query::pool_block(address).map(|(ordinal, size)| (Device::Cuda(ordinal), size));
    // The driver is asked when a measurement ought to know and nobody does.
    let asks = known.is_none() && guard::state() & guard::MEASURING != 0 && !measure::knows(space, address);
    let known = if asks && space == Space::Device { of_pool() } else { known };
    measure::on_free(space, address, known)
}

impl Told {
    /// memtrace's own work, of nothing, or nothing is recorded.
    pub(super) const NOTHING: Self = Self(None);

    /// To be called with the driver's answer. Puts back what the driver refused: that memory is still taken.
    pub(super) fn after(self, result: c_int) {
        let Some(Free { taking, measured, class, began }) = self.0 else { return };
        tell_freed(result, taking, measured, ticks::now().saturating_sub(began));
        // Memory of no pool goes back to the device at once.
        if class == Class::Classic {
            segments::settle(result);
        }
    }
}

fn tell_freed(result: c_int, taking: DeviceFree, measured: Option<measure::MeasuredFree>, took: u64) {
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
