//! Streams and events. All work is done when the call that asks for it returns.

use std::time::Instant;

use super::Machine;
use crate::code::{Answer, CAPTURE_UNSUPPORTED, INVALID_HANDLE, INVALID_VALUE};

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
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) recorded: Option<Instant>,
}

/// Handles of streams that always exist: the legacy default in two forms, and the thread's own.
pub(crate) const DEFAULT_STREAMS: [u64; 3] = [0, 1, 2];

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
        self.streams.get(&handle).copied().ok_or(INVALID_HANDLE)
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

    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32, thread: u64) -> Answer {
        let stream = self.streams.get_mut(&stream).ok_or(CAPTURE_UNSUPPORTED)?;
        if stream.capture.is_some() || mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        stream.capture = Some(Capture { mode, thread, is_broken: false });
        Ok(())
    }

    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.capture.is_some())
    }

    /// Refuses a call that is not allowed while somebody captures, and breaks the capture. `mode` is the
    /// calling thread's.
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
