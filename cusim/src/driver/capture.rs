//! Captures of what is put on a stream. Streams that would join a capture by an event do not here.

use super::abi::{Out, answer};
use super::copy::check_stream;
use super::process::with;
use super::thread;
use crate::Machine;
use crate::code::Answer;
use crate::machine::Capture;

driver! {
    fn cuStreamBeginCapture_v2(stream: u64, mode: u32) {
        with(|machine| machine.begin_capture(stream, mode, thread::number(), None))
    }

    fn cuStreamBeginCaptureToGraph(
        stream: u64, graph: u64, dependencies: Out<u64>, _data: usize, count: usize, mode: u32,
    ) {
        with(|machine| {
            check_nodes(machine, graph, dependencies, count)?;
            machine.begin_capture(stream, mode, thread::number(), Some(graph))
        })
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<u32>) {
        check_stream(stream)?;
        with(|machine| status.set(status_of(capture_of(machine, stream))))
    }

    fn cuStreamEndCapture(stream: u64, graph: Out<u64>) {
        let ended = with(|machine| machine.end_capture(stream));
        graph.set(ended.unwrap_or(0))?;
        ended.map(|_| ())
    }

    fn cuStreamGetCaptureInfo(stream: u64, status: Out<u32>, id: Out<u64>) {
        let null = Out::null();
        answer(cuStreamGetCaptureInfo_v3(stream, status, id, null, Out::null(), null, Out::null()))
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, count: Out<usize>,
    ) {
        answer(cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, Out::null(), count))
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, data: Out<u64>,
        count: Out<usize>,
    ) {
        check_stream(stream)?;
        with(|machine| {
            let capture = capture_of(machine, stream);
            status.set(status_of(capture))?;
            let Some(capture) = capture else { return Ok(()) };
            id.offer(capture.id);
            graph.offer(capture.graph);
            // The next node depends on the last one: what is on a stream is done in order.
            let handles = machine.graph(capture.graph)?.handles.as_slice();
            let last = handles.last_chunk::<1>();
            nodes.offer(last.map_or(std::ptr::null(), |last| last.as_ptr()));
            data.offer(0);
            count.offer(usize::from(last.is_some()));
            Ok(())
        })
    }
}

per_thread! {
    fn cuStreamBeginCapture_v2_ptsz = cuStreamBeginCapture_v2(; stream; mode: u32);
    fn cuStreamBeginCaptureToGraph_ptsz = cuStreamBeginCaptureToGraph(
        ; stream; graph: u64, dependencies: Out<u64>, data: usize, count: usize, mode: u32);
    fn cuStreamIsCapturing_ptsz = cuStreamIsCapturing(; stream; status: Out<u32>);
    fn cuStreamEndCapture_ptsz = cuStreamEndCapture(; stream; graph: Out<u64>);
    fn cuStreamGetCaptureInfo_ptsz = cuStreamGetCaptureInfo(; stream; status: Out<u32>, id: Out<u64>);
    fn cuStreamGetCaptureInfo_v2_ptsz = cuStreamGetCaptureInfo_v2(
        ; stream; status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, count: Out<usize>);
    fn cuStreamGetCaptureInfo_v3_ptsz = cuStreamGetCaptureInfo_v3(
        ; stream; status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, data: Out<u64>,
        count: Out<usize>);
}

fn capture_of(machine: &Machine, stream: u64) -> Option<Capture> {
    machine.stream(stream).ok().and_then(|stream| stream.capture)
}

/// `CUstreamCaptureStatus`.
fn status_of(capture: Option<Capture>) -> u32 {
    capture.map_or(0, |capture| if capture.is_broken { 2 } else { 1 })
}

/// That these are nodes of the graph.
pub(super) fn check_nodes(machine: &Machine, graph: u64, nodes: Out<u64>, count: usize) -> Answer {
    let known = &machine.graph(graph)?.handles;
    let all_known = (0..count).all(|index| nodes.at(index).get().is_ok_and(|node| known.contains(&node)));
    if all_known { Ok(()) } else { Err(crate::code::INVALID_VALUE) }
}
