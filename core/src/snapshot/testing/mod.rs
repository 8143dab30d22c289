//! Test fixtures: hand-made recordings. Each test describes its own as a [`Story`].

mod derive;
mod fixtures;
mod stacks;
mod story;
mod tests;
mod words;

pub(crate) use fixtures::{a_sample, empty, two_lines_and_a_temporary};
pub(crate) use stacks::{LINE_7, LINE_9, WORKER, frame, registry, stacks};
pub(crate) use story::Story;

use std::num::NonZeroU64;

use super::{Block, ContextId, MemoryKind, StackId, ThreadId};

/// A block with nothing but an address and a size.
pub(crate) fn block(address: u64, size: u64) -> Block {
    let (stack, context, thread) = (StackId::NONE, ContextId::ROOT, ThreadId(1));
    Block {
        address,
        size,
        seq: NonZeroU64::new(1),
        time_ns: 0,
        stack,
        context,
        thread,
        stream: 0,
        memory: MemoryKind::Heap,
    }
}
