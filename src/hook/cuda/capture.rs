//! Streams whose calls are being captured into a graph: memory that is asked for there is a node of the
//! graph, and comes and goes with its launches.
#![expect(unsafe_code, reason = "a result lies behind the caller's pointer")]

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attention::Reason;
use super::driver::SUCCESS;
use super::functions::{self, answer, cuStreamIsCapturing};
use super::graphs::{self, Node};
use super::place;
use super::words::{Handle, Outcome, Stream, Whose};
use crate::record::lock::lock;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::{fork, thread};
use crate::snapshot::Device;

/// Streams whose capture was begun, each with the thread if it is of the thread's own.
static BEGUN: Mutex<OwnVec<(Stream, u32)>> = Mutex::new(OwnVec::new_in(System));
/// There are some. What is asked of the driver for each call is asked only then.
static UNDER_WAY: Reason = Reason::new();
/// Allocations and frees that went into graphs that the driver did not name.
static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// What the unseen calls are called.
pub(super) const WORDS: &str = "cuMemAllocAsync or cuMemFreeAsync under stream capture";

fn with<T>(act: impl FnOnce(&mut OwnVec<(Stream, u32)>) -> T) -> T {
    let _no_fork = fork::no_fork();
    let mut begun = lock(&BEGUN);
    let answer = act(&mut begun);
    UNDER_WAY.set(!begun.is_empty());
    answer
}

/// True if it was not there before.
fn put(key: (Stream, u32)) -> bool {
    with(|begun| !begun.contains(&key) && try_push(begun, key))
}

/// True if it was there.
fn take(key: (Stream, u32)) -> bool {
    with(|begun| begun.iter().position(|known| *known == key).map(|at| begun.swap_remove(at)).is_some())
}

fn key(stream: Stream) -> (Stream, u32) {
    (stream, if stream == Stream::PER_THREAD { thread::number().number() } else { 0 })
}

/// A capture is about to begin: what is to be done after the call.
pub(super) fn beginning(stream: Stream) -> impl FnOnce(c_int) {
    let key = key(stream);
    let is_new = put(key);
    move |result| {
        if result != SUCCESS && is_new {
            take(key);
        }
    }
}

/// A capture is about to end: what is to be done after the call. It is over once its stream is not captured, even if
/// the call failed because it was spoilt.
pub(super) fn ending(stream: Stream, out: *const Handle) -> impl FnOnce(c_int) {
    let capture = capture_of(stream);
    move |result| {
        if result == SUCCESS && !out.is_null() {
            // SAFETY: the driver has written it.
            let graph = unsafe { out.read() }.addr();
            graphs::captured(graph, capture.map_or(u64::MAX, |capture| capture.id));
        }
        if capture.is_some() && of(stream).is_none() {
            take(key(stream));
        }
    }
}

/// A stream is about to be destroyed, and a capture that was begun on it comes to nothing: what is to be done after
/// the call. Its handle may be another's by then.
pub(super) fn destroying(stream: Stream) -> impl FnOnce(c_int) {
    let was_begun = UNDER_WAY.holds() && take(key(stream));
    move |result| {
        if result != SUCCESS && was_begun {
            put(key(stream));
        }
    }
}

/// Did an allocation go into a graph?
pub(super) fn takes_alloc(outcome: &Outcome) -> bool {
    let capture = capture_of(outcome.stream);
    let Outcome { address, size, .. } = *outcome;
    let node = || {
        let whose = match place::device_of(outcome) {
            Device::Cuda(ordinal) => Whose::Ordinal(ordinal),
            _ => Whose::Streams,
        };
        Node::Alloc { address, size, whose, site: graphs::site() }
    };
    capture.into_iter().for_each(|capture| capture.add(node));
    capture.is_some()
}

pub(super) fn unseen() -> u64 {
    UNSEEN.load(Ordering::Relaxed)
}

/// A capture under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capture {
    id: u64,
    /// 0 if the driver does not name it.
    graph: usize,
}

impl Capture {
    fn add(self, node: impl FnOnce() -> Node) {
        if self.graph == 0 {
            UNSEEN.fetch_add(1, Ordering::Relaxed);
        } else {
            graphs::add(self.graph, self.id, node());
        }
    }

    /// A free was captured.
    pub(super) fn freed(self, address: u64) {
        self.add(|| Node::Free { address });
    }
}

/// The capture that a stream takes part in; nothing is asked as long as there is none.
pub(super) fn capture_of(stream: Stream) -> Option<Capture> {
    if stream == Stream::NONE || !UNDER_WAY.holds() { None } else { of(stream) }
}

fn of(stream: Stream) -> Option<Capture> {
    if !is_capturing(stream)? {
        return None;
    }
    let (id, graph) = functions::capture_of(stream.handle()).unwrap_or_default();
    Some(Capture { id, graph })
}

fn is_capturing(stream: Stream) -> Option<bool> {
    answer(|status: &mut c_int| cuStreamIsCapturing(stream.handle(), status)).map(|status| status != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: usize) -> Stream {
        Stream::of(std::ptr::without_provenance_mut(number))
    }

    #[test]
    fn a_capture_is_under_way_until_it_ends_or_its_stream_is_destroyed() {
        let [one, two] = [0x8001, 0x8002].map(stream);
        let is_begun = |stream| with(|begun| begun.contains(&key(stream)));
        beginning(one)(1);
        assert!(!is_begun(one), "it was refused");
        beginning(one)(SUCCESS);
        beginning(one)(1);
        assert!(is_begun(one) && UNDER_WAY.holds(), "it had begun before");
        destroying(two)(SUCCESS);
        destroying(one)(1);
        assert!(is_begun(one), "it was not destroyed");
        destroying(one)(SUCCESS);
        assert!(!is_begun(one));
    }

    #[test]
    fn each_thread_captures_the_stream_of_its_own() {
        let is_begun = || with(|begun| begun.contains(&key(Stream::PER_THREAD)));
        beginning(Stream::PER_THREAD)(SUCCESS);
        std::thread::spawn(move || assert!(!is_begun())).join().unwrap();
        assert!(is_begun() && take(key(Stream::PER_THREAD)));
    }
}
