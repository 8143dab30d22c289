//! Streams and events. All work is done when the call that asks for it returns.

use std::time::Instant;

use super::Machine;
use crate::code::{Answer, INVALID_HANDLE};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// The capture under way.
    pub(crate) capture: Option<Capture>,
}

/// Recording calls into a graph instead of doing them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    pub(crate) mode: u32,
    pub(crate) thread: u64,
    /// Something was done that is not allowed during a capture.
    pub(crate) is_broken: bool,
    /// What the calls are captured into.
    pub(crate) graph: u64,
    /// The graph was made for this capture.
    pub(crate) owns_graph: bool,
    /// What the driver calls the capture's id.
    pub(crate) id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) recorded: Option<Instant>,
}

/// Handles of streams that always exist: the legacy default in two forms, and the thread's own.
pub(crate) const DEFAULT_STREAMS: [u64; 3] = [0, 1, 2];

/// The thread's own.
pub(super) const PER_THREAD: u64 = 2;

/// Streams by handle; the one that each thread has of its own by the thread, too.
pub(super) fn key(stream: u64) -> u64 {
    // SAFETY: asks the kernel for a number.
    let thread = || unsafe { libc::gettid() as u64 };
    if stream == PER_THREAD { PER_THREAD | thread() << 8 } else { stream }
}

/// Capture modes: which other calls break a capture.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const THREAD_LOCAL: u32 = 1;
pub(crate) const RELAXED: u32 = 2;

impl Machine {
    pub(crate) fn create_stream(&mut self, context: u64, flags: u32, priority: i32) -> u64 {
        let handle = self.new_handle();
        self.streams.insert(handle, Stream { context, flags, priority, capture: None });
        handle
    }

    pub(crate) fn stream(&self, handle: u64) -> Answer<Stream> {
        self.streams.get(&key(handle)).copied().ok_or(INVALID_HANDLE)
    }

    /// The context that work on a stream belongs to.
    pub(crate) fn context_of(&self, stream: u64, current: Answer<u64>) -> Answer<u64> {
        let context = if DEFAULT_STREAMS.contains(&stream) { current? } else { self.stream(stream)?.context };
        self.context(context).map(|context| context.handle)
    }

    pub(crate) fn create_event(&mut self, context: u64) -> u64 {
        let handle = self.new_handle();
        self.events.insert(handle, Event { context, recorded: None });
        handle
    }

    pub(crate) fn event(&self, handle: u64) -> Answer<Event> {
        self.events.get(&handle).copied().ok_or(INVALID_HANDLE)
    }
}
