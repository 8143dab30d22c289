//! CUDA stream capture. A stream does not join another stream's capture by waiting for an event.

use super::abi::{Out, answer};
use super::call::check_stream;
use super::process::with;
use super::thread;
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE};
use crate::machine::SimCapture;

driver! {
    fn cuStreamBeginCapture_v2(stream: u64, mode: u32) | cuStreamBeginCapture_v2_ptsz(stream) =>
        with(|machine| machine.begin_capture(stream, mode, thread::number(), None));

    fn cuStreamBeginCaptureToGraph(
        stream: u64, graph: u64, dependencies: Out<u64>, _data: usize, count: usize, mode: u32,
    ) | cuStreamBeginCaptureToGraph_ptsz(stream) {
        with(|machine| {
            check_nodes(machine, graph, dependencies, count)?;
            machine.begin_capture(stream, mode, thread::number(), Some(graph))
        })
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<u32>) | cuStreamIsCapturing_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| status.set(status_of(capture_of(machine, stream))))
    }

    fn cuStreamEndCapture(stream: u64, graph: Out<u64>) | cuStreamEndCapture_ptsz(stream) {
        let ended = with(|machine| machine.end_capture(stream));
        graph.set(ended.unwrap_or(0))?;
        ended.map(|_| ())
    }

    fn cuStreamGetCaptureInfo(stream: u64, status: Out<u32>, id: Out<u64>) | cuStreamGetCaptureInfo_ptsz(stream) {
        let null = Out::null();
        answer(cuStreamGetCaptureInfo_v3(stream, status, id, null, Out::null(), null, Out::null()))
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, count: Out<usize>,
    ) | cuStreamGetCaptureInfo_v2_ptsz(stream) =>
        answer(cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, Out::null(), count));

    fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, data: Out<u64>,
        count: Out<usize>,
    ) | cuStreamGetCaptureInfo_v3_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| {
            let capture = capture_of(machine, stream);
            status.set(status_of(capture))?;
            let Some(capture) = capture else { return Ok(()) };
            id.offer(capture.id);
            graph.offer(capture.graph);
            // Work on a stream runs in order, so the next node depends on the last one.
            let handles = machine.graph(capture.graph)?.handles.as_slice();
            let last = handles.last_chunk::<1>();
            nodes.offer(last.map_or(std::ptr::null(), |last| last.as_ptr()));
            data.offer(0);
            count.offer(usize::from(last.is_some()));
            Ok(())
        })
    }
}

fn capture_of(machine: &SimMachine, stream: u64) -> Option<SimCapture> {
    machine.stream(stream).ok().and_then(|stream| stream.capture)
}

/// `CUstreamCaptureStatus`.
fn status_of(capture: Option<SimCapture>) -> u32 {
    capture.map_or(0, |capture| if capture.is_broken { 2 } else { 1 })
}

/// Fails unless all nodes belong to the graph.
pub(super) fn check_nodes(machine: &SimMachine, graph: u64, nodes: Out<u64>, count: usize) -> Answer {
    let known = &machine.graph(graph)?.handles;
    let all_known = (0..count).all(|index| nodes.at(index).get().is_ok_and(|node| known.contains(&node)));
    if all_known { Ok(()) } else { Err(INVALID_VALUE) }
}
