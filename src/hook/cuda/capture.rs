//! Streams whose calls are being captured into a graph: memory that is asked for there is a node of the
//! graph, and comes and goes with its launches.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::functions::{self, answer, cuStreamIsCapturing};
use super::graphs::{self, Node};
use super::pointers::CallerPtr;
use super::table::HandleTable;
use super::words::{Outcome, Stream, Whose};
use super::{place, unseen};
use crate::record::thread;
use crate::snapshot::Device;

/// A stream, with the thread if it is of the thread's own.
type Key = (Stream, u32);

/// Streams whose capture was begun. What is asked of the driver for each call is asked only if there are some.
static BEGUN: HandleTable<Key, ()> = HandleTable::new().draws_attention();

fn key(stream: Stream) -> Key {
    (stream, if stream == Stream::PER_THREAD { thread::number().number() } else { 0 })
}

/// A capture is about to begin. Returns the callback to run with the call's result.
pub(super) fn beginning(stream: Stream) -> impl FnOnce(c_int) {
    let key = key(stream);
    let is_new = BEGUN.insert(key, ());
    move |result| {
        if result != SUCCESS && is_new {
            BEGUN.forget(key);
        }
    }
}

/// A capture is about to end. Returns the callback to run with the call's result. It is over once its stream is not
/// captured, even if the call failed because it was spoilt.
pub(super) fn ending(stream: Stream, out: CallerPtr<usize>) -> impl FnOnce(c_int) {
    let capture = capture_of(stream);
    move |result| {
        if let Some(graph) = out.written(result) {
            graphs::captured(graph, capture.map_or(u64::MAX, |capture| capture.id));
        }
        if capture.is_some() && of(stream).is_none() {
            BEGUN.forget(key(stream));
        }
    }
}

/// A stream is about to be destroyed, and a capture that was begun on it comes to nothing. Returns the callback to run
/// with the call's result. Its handle may be another's by then.
pub(super) fn destroying(stream: Stream) -> impl FnOnce(c_int) {
    BEGUN.removed(key(stream))
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
            unseen::CAPTURED.count();
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
    if stream == Stream::NONE || BEGUN.is_empty() { None } else { of(stream) }
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
        let is_begun = |stream| BEGUN.get(key(stream)).is_some();
        beginning(one)(1);
        assert!(!is_begun(one), "it was refused");
        beginning(one)(SUCCESS);
        beginning(one)(1);
        assert!(is_begun(one), "it had begun before");
        destroying(two)(SUCCESS);
        destroying(one)(1);
        assert!(is_begun(one), "it was not destroyed");
        destroying(one)(SUCCESS);
        assert!(!is_begun(one));
    }

    #[test]
    fn each_thread_captures_the_stream_of_its_own() {
        let is_begun = || BEGUN.get(key(Stream::PER_THREAD)).is_some();
        beginning(Stream::PER_THREAD)(SUCCESS);
        std::thread::spawn(move || assert!(!is_begun())).join().unwrap();
        assert!(is_begun() && BEGUN.remove(key(Stream::PER_THREAD)).entry().is_some());
    }
}
