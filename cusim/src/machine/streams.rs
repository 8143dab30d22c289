//! CUDA streams and events. All work is complete when the call that submits it returns.

use std::time::Instant;

use super::SimMachine;
use crate::code::{Answer, INVALID_HANDLE};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimStream {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) capture: Option<SimCapture>,
}

/// A stream capture: calls become nodes of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimCapture {
    pub(crate) mode: u32,
    pub(crate) thread: u64,
    /// The capture was invalidated by a call that is not allowed during a capture.
    pub(crate) is_broken: bool,
    pub(crate) graph: u64,
    pub(crate) owns_graph: bool,
    pub(crate) id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimEvent {
    pub(crate) context: u64,
    pub(crate) recorded: Option<Instant>,
}

/// Handles of the default streams: the legacy one in two forms, and the per-thread one.
pub(crate) const DEFAULT_STREAMS: [u64; 3] = [0, 1, 2];

/// The per-thread default stream.
pub(crate) const PER_THREAD: u64 = 2;

/// The key of a stream: its handle, with the thread for the per-thread default stream.
pub(super) fn key(stream: u64) -> u64 {
    // SAFETY: it only returns a number.
    let thread = || unsafe { libc::gettid() as u64 };
    if stream == PER_THREAD { PER_THREAD | thread() << 8 } else { stream }
}

/// Capture modes: which other calls invalidate a capture.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const THREAD_LOCAL: u32 = 1;
pub(crate) const RELAXED: u32 = 2;

impl SimMachine {
    pub(crate) fn create_stream(&mut self, context: u64, flags: u32, priority: i32) -> u64 {
        let handle = self.new_handle();
        self.streams.insert(handle, SimStream { context, flags, priority, capture: None });
        handle
    }

    pub(crate) fn stream(&self, handle: u64) -> Answer<SimStream> {
        self.streams.get(&key(handle)).copied().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn context_of(&self, stream: u64, current: Answer<u64>) -> Answer<u64> {
        let context = if DEFAULT_STREAMS.contains(&stream) { current? } else { self.stream(stream)?.context };
        self.context(context).map(|context| context.handle)
    }

    pub(crate) fn create_event(&mut self, context: u64) -> u64 {
        let handle = self.new_handle();
        self.events.insert(handle, SimEvent { context, recorded: None });
        handle
    }

    pub(crate) fn record_event(&mut self, handle: u64) -> Answer {
        self.events.get_mut(&handle).ok_or(INVALID_HANDLE)?.recorded = Some(Instant::now());
        Ok(())
    }

    pub(crate) fn event(&self, handle: u64) -> Answer<SimEvent> {
        self.events.get(&handle).copied().ok_or(INVALID_HANDLE)
    }
}
