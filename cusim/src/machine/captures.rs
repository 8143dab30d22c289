//! CUDA stream capture: calls on a stream become nodes of a graph and are not executed.

use super::streams::{GLOBAL, PER_THREAD, RELAXED, THREAD_LOCAL, key};
use super::{SimCapture, SimMachine, SimStream};
use crate::code::{Answer, CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, INVALID_VALUE, demand};

impl SimMachine {
    /// Captures into `graph`, by default into a new one.
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32, thread: u64, graph: Option<u64>) -> Answer {
        if stream == PER_THREAD {
            let own = SimStream { context: 0, flags: 0, priority: 0, capture: None };
            self.streams.entry(key(stream)).or_insert(own);
        }
        let is_capturing = self.streams.get(&key(stream)).ok_or(CAPTURE_UNSUPPORTED)?.capture.is_some();
        demand(!is_capturing && mode <= RELAXED)?;
        let (id, owns_graph) = (self.new_handle(), graph.is_none());
        let graph = if let Some(graph) = graph { graph } else { self.create_graph() };
        let capture = SimCapture { mode, thread, is_broken: false, graph, owns_graph, id };
        self.streams.get_mut(&key(stream)).ok_or(CAPTURE_UNSUPPORTED)?.capture = Some(capture);
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Answer<u64> {
        let found = self.streams.get_mut(&key(stream)).ok_or(INVALID_VALUE)?;
        let capture = found.capture.take().ok_or(INVALID_VALUE)?;
        if capture.is_broken {
            self.drop_capture(&capture);
            return Err(CAPTURE_INVALIDATED);
        }
        Ok(capture.graph)
    }

    /// Destroys the graph of a failed capture.
    pub(super) fn drop_capture(&mut self, capture: &SimCapture) {
        if capture.owns_graph {
            let _ = self.destroy_graph(capture.graph);
        }
    }

    pub(crate) fn destroy_stream(&mut self, handle: u64) -> Answer {
        let capture = self.stream(handle)?.capture;
        self.streams.remove(&handle);
        if let Some(capture) = capture {
            self.drop_capture(&capture);
        }
        Ok(())
    }

    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        self.streams.get(&key(stream)).is_some_and(|stream| stream.capture.is_some())
    }

    pub(crate) fn captured_graph(&self, stream: u64) -> Answer<Option<u64>> {
        match self.streams.get(&key(stream)).and_then(|stream| stream.capture) {
            Some(capture) if capture.is_broken => Err(CAPTURE_INVALIDATED),
            capture => Ok(capture.map(|capture| capture.graph)),
        }
    }

    /// Adds a node if the stream is being captured. Returns whether it is being captured: the caller must not
    /// execute the call then.
    pub(crate) fn captures(&mut self, stream: u64, kind: u32) -> Answer<bool> {
        let Some(graph) = self.captured_graph(stream)? else { return Ok(false) };
        self.add_node(graph, kind, 0)?;
        Ok(true)
    }

    /// Like [`Self::captures`], for an allocation; returns its address.
    pub(crate) fn captures_allocation(&mut self, stream: u64, device: usize, size: u64) -> Answer<Option<u64>> {
        let Some(graph) = self.captured_graph(stream)? else { return Ok(None) };
        self.add_allocation(graph, device, size).map(|(_, address)| Some(address))
    }

    /// Like [`Self::captures`], for a free.
    pub(crate) fn captures_free(&mut self, stream: u64, address: u64) -> Answer<bool> {
        let Some(graph) = self.captured_graph(stream)? else { return Ok(false) };
        self.add_free(graph, address)?;
        Ok(true)
    }

    /// Refuses a call that is not allowed during a capture, and invalidates the capture. `mode` is the calling
    /// thread's.
    pub(crate) fn check_captures(&mut self, thread: u64, mode: u32) -> Answer {
        let mut answer = Ok(());
        for capture in self.streams.values_mut().filter_map(|stream| stream.capture.as_mut()) {
            let everywhere = capture.mode == GLOBAL && mode == GLOBAL;
            let here = capture.thread == thread && capture.mode <= THREAD_LOCAL && mode <= THREAD_LOCAL;
            if everywhere || here {
                capture.is_broken = true;
                answer = Err(CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }
}
