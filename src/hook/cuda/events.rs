//! From a call of the driver and its result to what the recorder understands.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

use super::driver::{DEINITIALIZED, OUT_OF_MEMORY, SUCCESS};
use super::place::{context_of, device_of};
use super::{capture, copies, query, streams};
use crate::record::device_memory::{self, Taken};
use crate::record::{Site, guard, heap, recorder};
use crate::snapshot::{Device, OutOfMemory};

/// The gate of every hook: two relaxed loads.
#[inline]
pub(super) fn watching() -> bool {
    recorder::wants_device_memory() || copies::are_watching()
}

/// Where the memory is that a call is about.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// On the device of the stream, the pool or the current context.
    Device,
    Managed,
    Pinned,
}

/// Where a call leaves the address of what it allocated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    Out(*const u64),
    Given(u64),
}

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Plain(usize),
    /// The bytes of a row, which the driver chose, and the number of rows.
    Pitched(*const usize, usize),
}

/// The stream that a call names.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream(usize);

impl Stream {
    /// The call is not in the order of a stream.
    pub(super) const NONE: Self = Self(0);
    /// `CU_STREAM_LEGACY`, which is also what no stream means.
    pub(super) const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`.
    pub(super) const PER_THREAD: Self = Self(2);

    pub(super) fn of(handle: *mut c_void) -> Self {
        if handle.is_null() { Self::LEGACY } else { Self(handle.addr()) }
    }

    pub(super) fn handle(self) -> usize {
        self.0
    }

    /// None, or a number instead of an object: each context has these streams.
    pub(super) fn is_special(self) -> bool {
        self.0 <= 2
    }
}

/// An allocation that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) class: Class,
    pub(super) address: Address,
    pub(super) size: Size,
    pub(super) stream: Stream,
    /// It names a pool, which may be another device's than the stream's.
    pub(super) of_pool: bool,
}

/// An allocation as it came out: what copies of this library tell each other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) result: c_int,
    pub(super) class: Class,
    /// 0 if there is none.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: Stream,
    pub(super) of_pool: bool,
}

impl Outcome {
    /// # Safety
    /// The request's pointers are valid for reading what the driver wrote if `result` is 0.
    unsafe fn of(result: c_int, request: Request) -> Self {
        let done = result == SUCCESS;
        let address = match request.address {
            // SAFETY: the driver has written it.
            Address::Out(out) if done && !out.is_null() => unsafe { out.read() },
            Address::Out(_) => 0,
            Address::Given(address) => address,
        };
        let size = match request.size {
            Size::Plain(size) => size,
            // SAFETY: the driver has written it.
            Size::Pitched(pitch, rows) if done && !pitch.is_null() => unsafe { pitch.read() }.saturating_mul(rows),
            Size::Pitched(..) => 0,
        };
        let Request { class, stream, of_pool, .. } = request;
        Self { result, class, address, size: size as u64, stream, of_pool }
    }
}

/// # Safety
/// The request's pointers are valid for reading what the driver wrote if `result` is 0.
pub(super) unsafe fn after_alloc(result: c_int, request: Request) {
    if result != SUCCESS && result != OUT_OF_MEMORY {
        return;
    }
    // SAFETY: the caller says so.
    let outcome = unsafe { Outcome::of(result, request) };
    if result == SUCCESS && (outcome.address == 0 || capture::takes(request.stream)) {
        return;
    }
    copies::each(|listener| listener.after_alloc(&outcome));
    own_after_alloc(&outcome);
}

/// In this copy's recorder.
pub(super) fn own_after_alloc(outcome: &Outcome) {
    if !recorder::wants_device_memory() || guard::state() & guard::OWN != 0 {
        return;
    }
    // Outside of what follows, whose frames would only be in the way.
    let own = guard::own_work();
    let site = recorder::alloc_site(false);
    let act = || if outcome.result == SUCCESS { record(outcome, site) } else { note_refusal(outcome, site) };
    // Nothing here panics; if it did, that must not reach the program.
    let _ = catch_unwind(act);
    drop(own);
    if outcome.result == OUT_OF_MEMORY {
        let _ = catch_unwind(|| heap::refused(device_refused(outcome), outcome.size as usize));
    }
}

#[cold]
fn note_refusal(outcome: &Outcome, site: Site) {
    let (device_free, device_total) = query::device_memory().unzip();
    let Site { stack, context, thread, .. } = site;
    let (size, time_ns) = (outcome.size, 0);
    let oom = OutOfMemory { time_ns, size, device_free, device_total, stack, context, thread };
    device_memory::refused(device_refused(outcome), oom);
}

/// The device of an allocation that was refused. There is no block that could be asked about, so a stream of
/// another device than the current one is not told apart.
fn device_refused(outcome: &Outcome) -> Device {
    device_of(&Outcome { stream: Stream::NONE, of_pool: false, ..*outcome })
}

fn record(outcome: &Outcome, mut site: Site) {
    if outcome.stream != Stream::NONE {
        site.stream = streams::number(context_of(outcome.stream), outcome.stream, site.thread);
    }
    device_memory::on_alloc(device_of(outcome), outcome.address, outcome.size, site);
}

/// A free that is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) class: Class,
    pub(super) address: u64,
    /// As in [`Request`].
    pub(super) stream: Stream,
}

/// A free that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Free {
    /// memtrace's own work, of nothing, or nothing is recorded.
    NotWatched,
    Watched(Option<Taken>),
}

/// What is to be told after the call, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    own: Free,
    /// Others were told before it.
    others: bool,
}

/// Takes the block out of the account, before anybody else can be given its address.
pub(super) fn before_free(release: Release) -> Told {
    if release.address == 0 || capture::takes(release.stream) {
        return Told { own: Free::NotWatched, others: false };
    }
    copies::each(|listener| listener.before_free(&release));
    Told { own: own_before_free(&release), others: true }
}

/// In this copy's recorder.
pub(super) fn own_before_free(release: &Release) -> Free {
    if !recorder::wants_device_memory() || guard::state() & guard::OWN != 0 {
        return Free::NotWatched;
    }
    let _own = guard::own_work();
    let take = || device_memory::before_free(release.class == Class::Pinned, release.address);
    Free::Watched(catch_unwind(take).unwrap_or(None))
}

/// Puts it back if the driver refused: that memory is still taken.
pub(super) fn after_free(result: c_int, told: Told) {
    if told.others {
        copies::each(|listener| listener.after_free(result));
    }
    own_after_free(result, told.own);
}

/// In this copy's recorder.
pub(super) fn own_after_free(result: c_int, free: Free) {
    let Free::Watched(taken) = free else { return };
    if result == DEINITIALIZED {
        return;
    }
    let _own = guard::own_work();
    let _ = catch_unwind(|| match (result, taken) {
        (SUCCESS, Some(_)) => {}
        (SUCCESS, None) => device_memory::freed_unknown(),
        _ => device_memory::free_was_refused(taken),
    });
}
