//! Where a call of the driver and its result go: to the recorder, into a graph, or to a table of what stays.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;

use super::capture::{self, Capture};
use super::driver::{OUT_OF_MEMORY, SUCCESS};
use super::tell::{Told, after_free, tell_alloc, tell_free};
use super::words::{Address, Outcome, Release, Request, Size};
use super::{graphs, imports};
use crate::record::ticks;

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
