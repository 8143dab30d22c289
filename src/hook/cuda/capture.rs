//! Streams whose calls are being captured into a graph: memory that is asked for there is a node of the
//! graph, and comes and goes with its launches.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{Function, SUCCESS};
use super::events::Stream;

/// Captures under way. What is asked of the driver for each call is asked only while there are any.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
/// Allocations and frees that went into graphs.
static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// What the unseen calls are called.
pub(super) const WORDS: &str = "cuMemAllocAsync or cuMemFreeAsync under stream capture";

pub(super) fn begun(result: c_int) {
    if result == SUCCESS {
        UNDER_WAY.fetch_add(1, Ordering::AcqRel);
    }
}

/// Before the call, whatever comes of it: a capture that could not be ended was spoilt, and is over.
pub(super) fn finished() {
    let less = |count: u64| count.checked_sub(1);
    let _ = UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
}

/// Does a call on this stream go into a graph? Counts it if so.
pub(super) fn takes(stream: Stream) -> bool {
    if stream == Stream::NONE || UNDER_WAY.load(Ordering::Acquire) == 0 {
        return false;
    }
    let taken = is_capturing(stream).unwrap_or(false);
    UNSEEN.fetch_add(u64::from(taken), Ordering::Relaxed);
    taken
}

pub(super) fn unseen() -> u64 {
    UNSEEN.load(Ordering::Relaxed)
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
