//! Stack, scopes and thread of an event.

use memtrace_core::snapshot::{ContextId, MemoryKind, StackId, ThreadId};

/// Stack, scopes, thread, stream and kind of memory of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventSite {
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    pub(crate) stream: u32,
    /// Always [`MemoryKind::Heap`] on the heap.
    pub(crate) memory: MemoryKind,
}
