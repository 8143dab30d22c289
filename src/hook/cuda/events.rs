//! Dispatches allocations and frees to the recorder, to a captured graph, or to a handle table.

use std::ffi::c_int;

use super::capture::StreamCapture;
use super::driver::{OUT_OF_MEMORY, SUCCESS};
use super::graphs::LIVE;
use super::imports::PARTS;
use super::notify::{PendingFree, notify_alloc, notify_free};
use super::table::Undo;
use super::types::{AddressSource, FreeRequest, Outcome, Place, Request, Size};
use super::{attention, capture};
use crate::record::ticks;

impl Outcome {
    fn of(result: c_int, request: Request, place: Place, took: u64) -> Self {
        let address = match request.address {
            AddressSource::Out(out) => out.written(result).unwrap_or(0),
            AddressSource::Given(address) => address,
        };
        let size = match request.size {
            Size::Plain(size) => size,
            Size::Pitched(pitch, width, rows) => pitch.written(result).unwrap_or(width).saturating_mul(rows),
        };
        let Request { class, stream, .. } = request;
        Self { result, class, address, size: size as u64, stream, place, took }
    }
}

/// The state of an allocation before the driver call.
struct AllocBefore {
    place: Place,
    captured: Option<StreamCapture>,
    began: u64,
}

pub(super) fn alloc(request: Request) -> impl FnOnce(c_int) {
    let before = || AllocBefore {
        place: Place::before(request.class, request.stream, request.hint),
        captured: capture::capture_of(request.stream),
        began: ticks::now(),
    };
    let before = if attention::is_idle() { None } else { Some(before()) };
    move |result| {
        if let Some(before) = before {
            after_alloc(result, request, &before);
        }
    }
}

fn after_alloc(result: c_int, request: Request, before: &AllocBefore) {
    let took = ticks::now().saturating_sub(before.began);
    let outcome = Outcome::of(result, request, before.place, took);
    match (result, before.captured) {
        (SUCCESS, _) if outcome.address == 0 => {}
        // The stream is being captured, so the allocation becomes a graph node instead.
        (SUCCESS, Some(capture)) => capture.allocated(&outcome),
        (SUCCESS | OUT_OF_MEMORY, _) => notify_alloc(&outcome),
        _ => {}
    }
}

/// Takes a block out of its account, or a buffer within external memory out of its table. This happens before the
/// driver call, because afterwards another thread may get the address.
fn take(request: FreeRequest) -> (Undo<u64, ()>, PendingFree) {
    let part = PARTS.remove(request.address);
    if part.entry().is_some() {
        return (part, PendingFree::NONE);
    }
    (LIVE.remove(request.address), notify_free(request))
}

/// Handles a free. If the stream is being captured, the call frees nothing, but adds a free node to a graph.
pub(super) fn free(request: FreeRequest) -> impl FnOnce(c_int) {
    let is_seen = !attention::is_idle() && request.address != 0;
    let captured = if is_seen { capture::capture_of(request.stream) } else { None };
    let taken = if is_seen && captured.is_none() { Some(take(request)) } else { None };
    move |result| {
        if let Some(capture) = captured.filter(|_| result == SUCCESS) {
            capture.freed(request.address);
        }
        if let Some((undo, pending)) = taken {
            undo.finish(result);
            pending.finish(result);
        }
    }
}
