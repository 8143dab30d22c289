//! Streams whose calls are being captured into a graph: memory that is asked for there is a node of the
//! graph, and comes and goes with its launches.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::attention::Reason;
use super::driver::{Function, SUCCESS};
use super::events::{Outcome, Release, Stream, Whose};
use super::graphs::{self, Node};
use super::place;
use super::requests::Handle;
use crate::snapshot::Device;

/// Captures under way. What is asked of the driver for each call is asked only while there are any.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
static ANY: Reason = Reason::new();
/// Allocations and frees that went into graphs that the driver did not name.
static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// What the unseen calls are called.
pub(super) const WORDS: &str = "cuMemAllocAsync or cuMemFreeAsync under stream capture";

pub(super) fn begun(result: c_int) {
    if result == SUCCESS {
        UNDER_WAY.fetch_add(1, Ordering::AcqRel);
        ANY.set(true);
    }
}

/// A capture is about to end: what is to be done after the call. A capture that could not be ended was
/// spoilt, and is over.
pub(super) fn ending(stream: Stream, out: *const Handle) -> impl FnOnce(c_int) {
    let capture = if UNDER_WAY.load(Ordering::Acquire) == 0 { None } else { of(stream) };
    let less = |count: u64| count.checked_sub(1);
    if UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
        ANY.set(UNDER_WAY.load(Ordering::Acquire) > 0);
    }
    move |result| {
        if result == SUCCESS && !out.is_null() {
            // SAFETY: the driver has written it.
            let graph = unsafe { out.read() }.addr();
            graphs::captured(graph, capture.map_or(u64::MAX, |capture| capture.id));
        }
    }
}

/// Did an allocation go into a graph?
pub(super) fn takes_alloc(outcome: &Outcome) -> bool {
    takes(outcome.stream, || {
        let Outcome { address, size, .. } = *outcome;
        let whose = match place::device_of(outcome) {
            Device::Cuda(ordinal) => Whose::Ordinal(ordinal),
            _ => Whose::Streams,
        };
        Node::Alloc { address, size, whose, site: graphs::site() }
    })
}

/// Does a free go into a graph?
pub(super) fn takes_free(release: &Release) -> bool {
    takes(release.stream, || Node::Free { address: release.address })
}

fn takes(stream: Stream, node: impl FnOnce() -> Node) -> bool {
    if stream == Stream::NONE || UNDER_WAY.load(Ordering::Acquire) == 0 {
        return false;
    }
    match of(stream) {
        None => false,
        Some(Capture { graph: 0, .. }) => {
            UNSEEN.fetch_add(1, Ordering::Relaxed);
            true
        }
        Some(capture) => {
            graphs::add(capture.graph, capture.id, node());
            true
        }
    }
}

pub(super) fn unseen() -> u64 {
    UNSEEN.load(Ordering::Relaxed)
}

/// A capture under way.
#[derive(Clone, Copy, Debug)]
struct Capture {
    id: u64,
    /// 0 if the driver does not name it.
    graph: usize,
}

/// The capture that a stream takes part in.
fn of(stream: Stream) -> Option<Capture> {
    if !is_capturing(stream)? {
        return None;
    }
    Some(info(stream).unwrap_or(Capture { id: 0, graph: 0 }))
}

fn info(stream: Stream) -> Option<Capture> {
    type GetInfo =
        unsafe extern "C" fn(*mut c_void, *mut c_int, *mut u64, *mut Handle, *mut *const Handle, *mut usize) -> c_int;
    static GET_INFO: Function = Function::new(c"cuStreamGetCaptureInfo_v2");
    // SAFETY: the address is that of the function with this signature.
    let ask = unsafe { std::mem::transmute::<usize, GetInfo>(GET_INFO.address()?) };
    let (mut status, mut id, mut graph, mut count) = (0, 0, std::ptr::null_mut(), 0);
    let mut before = std::ptr::null();
    let stream = std::ptr::with_exposed_provenance_mut(stream.handle());
    // SAFETY: the stream is the caller's, and the places for the answers ours.
    let result = unsafe { ask(stream, &mut status, &mut id, &mut graph, &mut before, &mut count) };
    (result == SUCCESS).then(|| Capture { id, graph: graph.addr() })
}

fn is_capturing(stream: Stream) -> Option<bool> {
    type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
    static IS_CAPTURING: Function = Function::new(c"cuStreamIsCapturing");
    // SAFETY: the address is that of the function with this signature.
    let ask = unsafe { std::mem::transmute::<usize, IsCapturing>(IS_CAPTURING.address()?) };
    let mut status = 0;
    // SAFETY: the stream is the caller's, and the place for the answer ours.
    let result = unsafe { ask(std::ptr::with_exposed_provenance_mut(stream.handle()), &mut status) };
    (result == SUCCESS).then_some(status != 0)
}
