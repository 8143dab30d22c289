//! CUDA stream capture. Allocations and frees on a captured stream become nodes of a graph and run at its launches.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::functions::{self, answer, cuStreamIsCapturing};
use super::graphs::{self, GraphPart, Node};
use super::pointers::CallerPtr;
use super::table::HandleTable;
use super::types::{Outcome, Stream};
use super::unseen;
use crate::record::thread;

/// A stream, and the thread's number if it is the per-thread default stream, or else 0.
type CaptureKey = (Stream, u32);

/// Streams on which a capture was begun. If uses are recorded and the capture makes a new graph, the marker for this
/// graph is kept, too. Calls query the driver about captures only while there are such streams.
static BEGUN: HandleTable<CaptureKey, Option<GraphPart>> = HandleTable::new().draws_attention();

fn key(stream: Stream) -> CaptureKey {
    (stream, if stream == Stream::PER_THREAD { thread::number().number() } else { 0 })
}

pub(super) fn beginning(stream: Stream, new_graph: bool) -> impl FnOnce(c_int) {
    let key = key(stream);
    // The contents of an existing graph may be unknown.
    let complete = if new_graph { graphs::complete() } else { None };
    let is_new = BEGUN.insert(key, complete);
    move |result| {
        if result != SUCCESS && is_new {
            BEGUN.forget(key);
        }
    }
}

/// After the call, the capture counts as over if its stream is no longer captured. For a capture that was invalidated,
/// the call fails, but ends the capture.
pub(super) fn ending(stream: Stream, out: CallerPtr<usize>) -> impl FnOnce(c_int) {
    let capture = capture_of(stream);
    // If the driver does not report the graph, the nodes of the capture are not known.
    let complete = capture.filter(|capture| capture.graph != 0).and_then(|_| BEGUN.get(key(stream)).flatten());
    move |result| {
        if let Some(graph) = out.written(result) {
            graphs::captured(graph, capture.map_or(u64::MAX, |capture| capture.id));
            if let Some(complete) = complete {
                graphs::add(graph, 0, Node::Part(complete));
            }
        }
        if capture.is_some() && query(stream).is_none() {
            BEGUN.forget(key(stream));
        }
    }
}

/// A capture on a destroyed stream yields no graph.
pub(super) fn destroying(stream: Stream) -> impl FnOnce(c_int) {
    BEGUN.destroying(key(stream))
}

/// A stream capture in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamCapture {
    id: u64,
    /// 0 if the driver does not report it, as before CUDA 11.3.
    graph: usize,
}

impl StreamCapture {
    pub(super) fn used(self, part: GraphPart) {
        if self.graph != 0 {
            graphs::add(self.graph, self.id, Node::Part(part));
        }
    }

    pub(super) fn allocated(self, outcome: &Outcome) {
        let Outcome { address, size, place, .. } = *outcome;
        self.add(|| Node::Alloc { address, size, device: place.device, site: graphs::site() });
    }

    pub(super) fn freed(self, address: u64) {
        self.add(|| Node::Free { address });
    }

    fn add(self, node: impl FnOnce() -> Node) {
        if self.graph == 0 {
            unseen::CAPTURED.count();
        } else {
            graphs::add(self.graph, self.id, node());
        }
    }
}

/// The capture that a stream takes part in. Queries the driver only if a capture was begun.
pub(super) fn capture_of(stream: Stream) -> Option<StreamCapture> {
    if stream == Stream::NONE || BEGUN.is_empty() { None } else { query(stream) }
}

fn query(stream: Stream) -> Option<StreamCapture> {
    let status = answer(|status: &mut c_int| cuStreamIsCapturing(stream.handle(), status))?;
    if status == 0 {
        return None;
    }
    let (id, graph) = functions::capture_of(stream.handle()).unwrap_or_default();
    Some(StreamCapture { id, graph })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: usize) -> Stream {
        Stream::of(std::ptr::without_provenance_mut(number), false)
    }

    #[test]
    fn a_capture_is_under_way_until_it_ends_or_its_stream_is_destroyed() {
        let [one, two] = [0x8001, 0x8002].map(stream);
        let is_begun = |stream| BEGUN.get(key(stream)).is_some();
        beginning(one, true)(1);
        assert!(!is_begun(one), "it was refused");
        beginning(one, true)(SUCCESS);
        beginning(one, true)(1);
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
        beginning(Stream::PER_THREAD, true)(SUCCESS);
        std::thread::spawn(move || assert!(!is_begun())).join().unwrap();
        assert!(is_begun() && BEGUN.remove(key(Stream::PER_THREAD)).entry().is_some());
    }
}
