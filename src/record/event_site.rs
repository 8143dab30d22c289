//! Stack, scopes and thread of an event on the current thread.

use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_core::snapshot::{ContextId, DEFAULT_STACK_DEPTH, MemoryKind, StackContext, StackId, ThreadId};

use super::gates::{self, GATES};
use super::unwind::stack::FoundStack;
use super::unwind::with_stack;
use super::{STACKS, guard, thread};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventSite {
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    pub(crate) stream: u32,
    /// [`MemoryKind::Heap`] for every heap block.
    pub(crate) memory: MemoryKind,
}

/// Stacks whose middle frames were left out.
pub(crate) static SHORTENED: AtomicU64 = AtomicU64::new(0);

/// The site of an allocation, with its stack if wanted.
#[inline(always)]
pub(crate) fn alloc_site(always_with_stack: bool) -> EventSite {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    // A measurement groups blocks by stack, so its stacks have at least the default depth, whichever session
    // starts or ends meanwhile.
    let depth = gates::stack_depth();
    let depth = if always_with_stack { depth.max(DEFAULT_STACK_DEPTH) } else { depth };
    let stack = if always_with_stack || wanted { capture(depth) } else { StackId::NONE };
    EventSite { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Drops the stack if neither the session nor a measurement that is active on this thread wants it.
#[inline]
pub(crate) fn site_for_session(site: EventSite) -> EventSite {
    let wanted = guard::measure() != 0 || GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    if wanted { site } else { EventSite { stack: StackId::NONE, ..site } }
}

#[inline]
pub(crate) fn free_site() -> EventSite {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) == StackContext::All as u8;
    let stack = if wanted { stack_of_free() } else { StackId::NONE };
    EventSite { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Out of line: few recordings take stacks of frees.
#[cfg_attr(not(debug_assertions), inline(never))]
#[cfg_attr(debug_assertions, inline(always))]
fn stack_of_free() -> StackId {
    capture(gates::stack_depth())
}

#[inline(always)]
fn capture(depth: usize) -> StackId {
    let stack = with_stack(depth, &STACKS, |taken| match taken {
        FoundStack::Guessed(known) => StackId(known.number),
        FoundStack::Walked(stack) => {
            if stack.shortened {
                SHORTENED.fetch_add(1, Ordering::Relaxed);
            }
            STACKS.intern(stack)
        }
    });
    STACKS.learn(stack);
    stack
}
