//! From a call of the driver and its result to what the recorder understands.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

use super::capture::Capture;
use super::driver::{DEINITIALIZED, OUT_OF_MEMORY, SUCCESS};
use super::place::{context_of, device_of};
use super::{attention, capture, graphs, imports, query, segments, streams};
use crate::errno::KeepErrno;
use crate::record::device_memory::{self, Taking};
use crate::record::measure::{self, Space};
use crate::record::{Site, gates, guard, heap, recorder, thread, ticks};
use crate::snapshot::{Device, MemoryKind, OutOfMemory};

/// The gate of every hook: two relaxed loads.
#[inline]
pub(super) fn is_idle() -> bool {
    !gates::watches_device_memory() && !attention::is_wanted()
}

/// Does anybody record?
#[inline]
pub(super) fn watching() -> bool {
    gates::watches_device_memory()
}

/// What kind of memory a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Pool,
    Classic,
    Managed,
    Pinned,
    Registered,
    Virtual,
    /// As `Virtual`, but the host's.
    VirtualHost,
    Array,
    Graph,
    Imported,
}

impl Class {
    /// Of the host, and known to the driver.
    pub(super) fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::VirtualHost)
    }

    pub(super) fn memory(self) -> MemoryKind {
        match self {
            Self::Pool => MemoryKind::Pool,
            Self::Classic => MemoryKind::Classic,
            Self::Managed => MemoryKind::Managed,
            Self::Pinned => MemoryKind::Pinned,
            Self::Registered => MemoryKind::Registered,
            Self::Virtual | Self::VirtualHost => MemoryKind::Virtual,
            Self::Array => MemoryKind::Array,
            Self::Graph => MemoryKind::Graph,
            Self::Imported => MemoryKind::Imported,
        }
    }
}

/// Which device a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The stream's, if it is not one that every context has, else the current context's.
    Streams,
    /// Of that which the address belongs to: a pool may be another device's.
    Address,
    /// Named by the call.
    Ordinal(u32),
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
    /// The bytes of a row that the driver chose, those that were asked for, and the number of rows.
    Pitched(*const usize, usize, usize),
}

/// The stream that a call names.
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
    pub(super) whose: Whose,
}

/// An allocation as it came out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) result: c_int,
    pub(super) class: Class,
    /// 0 if there is none.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: Stream,
    pub(super) whose: Whose,
    /// How long the driver took, in ticks.
    pub(super) took: u64,
}

impl Outcome {
    /// # Safety
    /// The request's pointers are valid for reading what the driver wrote if `result` is 0.
    unsafe fn of(result: c_int, request: Request, took: u64) -> Self {
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
            Size::Pitched(pitch, _, rows) if done && !pitch.is_null() => unsafe { pitch.read() }.saturating_mul(rows),
            Size::Pitched(_, width, rows) => width.saturating_mul(rows),
        };
        let Request { class, stream, whose, .. } = request;
        Self { result, class, address, size: size as u64, stream, whose, took }
    }
}

/// # Safety
/// The request's pointers are valid for reading what the driver wrote if `result` is 0.
pub(super) unsafe fn after_alloc(result: c_int, request: Request, began: u64) {
    let took = ticks::now().saturating_sub(began);
    if result != SUCCESS && result != OUT_OF_MEMORY {
        return;
    }
    // SAFETY: the caller says so.
    let outcome = unsafe { Outcome::of(result, request, took) };
    if result == SUCCESS && (outcome.address == 0 || capture::takes_alloc(&outcome)) {
        return;
    }
    tell_alloc(&outcome);
}

/// To the recorder.
pub(super) fn tell_alloc(outcome: &Outcome) {
    tell_alloc_at(outcome, None);
}

/// A call that allocates was refused.
pub(super) fn tell_refusal(outcome: &Outcome) {
    if outcome.result == OUT_OF_MEMORY {
        tell_alloc(outcome);
    }
}

/// The same for a block that was asked for elsewhere, and comes into being in the scopes of here.
pub(super) fn tell_alloc_at(outcome: &Outcome, at: Option<Site>) {
    if !gates::watches_device_memory() || guard::state() & guard::OWN != 0 {
        return;
    }
    // Outside of what follows, whose frames would only be in the way.
    let own = guard::own_work();
    let site = match at {
        Some(site) => Site { context: guard::context(), thread: thread::number(), ..site },
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

/// Here, as far as anybody wants to know.
pub(super) fn site_here() -> Site {
    let measuring = gates::any_measurement() && measure::may_concern_this_thread();
    if measuring || gates::records_device_memory() { recorder::alloc_site(measuring) } else { Site::default() }
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
    let whose = if let Whose::Ordinal(_) = outcome.whose { outcome.whose } else { Whose::Streams };
    device_of(&Outcome { stream: Stream::NONE, whose, ..*outcome })
}

fn record(outcome: &Outcome, mut site: Site) {
    site.memory = outcome.class.memory();
    if outcome.stream != Stream::NONE {
        site.stream = streams::number(context_of(outcome.stream), outcome.stream, site.thread);
    }
    let device = device_of(outcome);
    let Outcome { address, size, took, .. } = *outcome;
    let ask = || segments::told(address, size, site.memory);
    device_memory::on_alloc(device, device_memory::New { address, size, site, took }, ask);
}

/// A free that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) class: Class,
    pub(super) address: u64,
    /// As in [`Request`].
    pub(super) stream: Stream,
}

/// A free that is under way.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and a hook does not allocate")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Free {
    /// memtrace's own work, of nothing, or nothing is recorded.
    NotWatched,
    Watched(Taking, Option<measure::Taken>),
}

/// What is to be told after the call, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    free: Free,
    class: Class,
    began: u64,
}

impl Told {
    pub(super) const NOTHING: Self = Self { free: Free::NotWatched, class: Class::Pool, began: 0 };
}

/// What a call frees, as far as that is known before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freeing {
    Block(Told),
    /// What a launch of a graph left.
    OfGraph(Told, u64),
    /// It becomes a node of a graph.
    Captured(Capture, u64),
    /// A part of something that stays.
    Part(u64),
}

/// Takes the block out of the account, before anybody else can be given its address.
pub(super) fn before_free(release: Release) -> Freeing {
    let Release { address, stream, .. } = release;
    if address == 0 {
        return Freeing::Block(Told::NOTHING);
    }
    if let Some(capture) = capture::capture_of(stream) {
        return Freeing::Captured(capture, address);
    }
    if imports::take_part(address) {
        return Freeing::Part(address);
    }
    if graphs::freed(address) {
        return Freeing::OfGraph(tell_free(release), address);
    }
    Freeing::Block(tell_free(release))
}

impl Freeing {
    /// To be called after the call.
    pub(super) fn done(self, result: c_int) {
        match self {
            Self::Block(told) => after_free(result, told),
            Self::OfGraph(told, address) => {
                if result != SUCCESS {
                    graphs::free_was_refused(address);
                }
                after_free(result, told);
            }
            Self::Captured(capture, address) if result == SUCCESS => capture.freed(address),
            Self::Part(address) if result != SUCCESS => imports::put_part(address),
            Self::Captured(..) | Self::Part(_) => {}
        }
    }
}

/// To the recorder.
pub(super) fn tell_free(release: Release) -> Told {
    if !watching() || guard::state() & guard::OWN != 0 {
        return Told::NOTHING;
    }
    Told { free: take(&release), class: release.class, began: ticks::now() }
}

fn take(release: &Release) -> Free {
    let _own = guard::own_work();
    let take = || {
        let pinned = release.class.is_pinned();
        match device_memory::before_free(pinned, release.address) {
            Taking::Unknown if recorder::had_blocks_before() && !pinned => query::pool_block(release.address)
                .map_or(Taking::Unknown, |(ordinal, size)| {
                    device_memory::before_free_of_before(Device::Cuda(ordinal), release.address, size)
                }),
            taking => taking,
        }
    };
    let taking = catch_unwind(take).unwrap_or(Taking::Unknown);
    let measured = || gates::any_measurement().then(|| take_measured(release, taking.known())).flatten();
    Free::Watched(taking, catch_unwind(measured).unwrap_or(None))
}

fn take_measured(release: &Release, known: Option<(Device, u64)>) -> Option<measure::Taken> {
    let address = release.address;
    let space = if release.class.is_pinned() { Space::Pinned } else { Space::Device };
    let of_pool = || query::pool_block(address).map(|(ordinal, size)| (Device::Cuda(ordinal), size));
    // The driver is asked when a measurement ought to know and nobody does.
    let asks = known.is_none() && guard::state() & guard::MEASURING != 0 && !measure::knows(space, address);
    let known = if asks && space == Space::Device { of_pool() } else { known };
    measure::on_free(space, address, known)
}

/// Puts it back if the driver refused: that memory is still taken.
pub(super) fn after_free(result: c_int, told: Told) {
    let Free::Watched(taking, measured) = told.free else { return };
    tell_freed(result, taking, measured, ticks::now().saturating_sub(told.began));
    // Memory of no pool goes back to the device at once.
    if told.class == Class::Classic {
        segments::settle(result);
    }
}

fn tell_freed(result: c_int, taking: Taking, measured: Option<measure::Taken>, took: u64) {
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
