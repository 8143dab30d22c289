//! Who did something, where.

use crate::snapshot::{ContextId, MemoryKind, StackId, ThreadId};

/// Who did something, where.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Site {
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    pub(crate) stream: u32,
    /// How the block is come by; on the heap there is one way.
    pub(crate) memory: MemoryKind,
}
