//! Who does something, where: on this thread, now.

use std::sync::atomic::{AtomicU64, Ordering};

use super::gates::GATES;
use super::site::Site;
use super::unwind::stack::Taken;
use super::unwind::with_stack;
use super::{STACKS, guard, thread};
use crate::snapshot::{DEFAULT_STACK_DEPTH, MemoryKind, StackContext, StackId};

/// Stacks that lost their middle frames.
pub(crate) static SHORTENED: AtomicU64 = AtomicU64::new(0);

/// Where an allocation of this thread happens, with its stack if the recording keeps it.
#[inline(always)]
pub(crate) fn alloc_site(always_with_stack: bool) -> Site {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    // What a measurement tells apart by stack must not depend on a session that comes or goes meanwhile.
    let depth = GATES.stack_depth.load(Ordering::Relaxed) as usize;
    let depth = if always_with_stack { depth.max(DEFAULT_STACK_DEPTH) } else { depth };
    let stack = if always_with_stack || wanted { capture(depth) } else { StackId::NONE };
    Site { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Without the stack, if that was taken for the measurement of somebody else.
#[inline]
pub(crate) fn site_for_session(site: Site) -> Site {
    let wanted = guard::measure() != 0 || GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    if wanted { site } else { Site { stack: StackId::NONE, ..site } }
}

#[inline]
pub(crate) fn free_site() -> Site {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) == StackContext::All as u8;
    let stack = if wanted { stack_of_free() } else { StackId::NONE };
    Site { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Apart: most recordings have none.
#[cfg_attr(not(debug_assertions), inline(never))]
#[cfg_attr(debug_assertions, inline(always))]
fn stack_of_free() -> StackId {
    capture(GATES.stack_depth.load(Ordering::Relaxed) as usize)
}

#[inline(always)]
fn capture(depth: usize) -> StackId {
    let guess = |innermost| STACKS.guess(innermost);
    let stack = with_stack(depth, guess, |taken| match taken {
        Taken::Guessed(known) => StackId(known.number),
        Taken::Walked(stack) => {
            if stack.shortened {
                SHORTENED.fetch_add(1, Ordering::Relaxed);
            }
            STACKS.intern(stack)
        }
    });
    STACKS.learn(stack);
    stack
}
