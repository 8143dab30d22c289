//! Where a call of the driver and its result go: to the recorder, into a graph, or to a table of what stays.

use std::ffi::c_int;

use super::driver::{OUT_OF_MEMORY, SUCCESS};
use super::graphs::LIVE;
use super::imports::PARTS;
use super::table::Undo;
use super::tell::{Told, tell_alloc, tell_free};
use super::words::{Address, Outcome, Release, Request, Size};
use super::{attention, capture};
use crate::record::ticks;

impl Outcome {
    fn of(result: c_int, request: Request, took: u64) -> Self {
        let address = match request.address {
            Address::Out(out) => out.written(result).unwrap_or(0),
            Address::Given(address) => address,
        };
        let size = match request.size {
            Size::Plain(size) => size,
            Size::Pitched(pitch, width, rows) => pitch.written(result).unwrap_or(width).saturating_mul(rows),
        };
        let Request { class, stream, whose, .. } = request;
        Self { result, class, address, size: size as u64, stream, whose, took }
    }
}

/// Returns the callback to run with the result of a call that allocates.
pub(super) fn alloc(request: Request) -> impl FnOnce(c_int) {
    let began = if attention::is_idle() { None } else { Some(ticks::now()) };
    move |result| {
        if let Some(began) = began {
            after_alloc(result, request, began);
        }
    }
}

fn after_alloc(result: c_int, request: Request, began: u64) {
    let took = ticks::now().saturating_sub(began);
    if result != SUCCESS && result != OUT_OF_MEMORY {
        return;
    }
    let outcome = Outcome::of(result, request, took);
    if result == SUCCESS && (outcome.address == 0 || capture::takes_alloc(&outcome)) {
        return;
    }
    tell_alloc(&outcome);
}

/// Takes a block out of the account, before anybody else can be given its address.
fn take(release: Release) -> (Undo<u64, ()>, Told) {
    let part = PARTS.remove(release.address);
    if part.entry().is_some() {
        return (part, Told::NOTHING);
    }
    (LIVE.remove(release.address), tell_free(release))
}

/// Returns the callback to run with the result of a call that frees. While its stream is captured, the free becomes a
/// node of a graph instead.
pub(super) fn free(release: Release) -> impl FnOnce(c_int) {
    let is_seen = !attention::is_idle() && release.address != 0;
    let captured = if is_seen { capture::capture_of(release.stream) } else { None };
    let taken = if is_seen && captured.is_none() { Some(take(release)) } else { None };
    move |result| {
        if let Some(capture) = captured.filter(|_| result == SUCCESS) {
            capture.freed(release.address);
        }
        if let Some((undo, told)) = taken {
            undo.after(result);
            told.after(result);
        }
    }
}
