//! Lifetimes of blocks, with the hints of their stacks and contexts.

use std::num::NonZeroU64;

use super::Attribution;
use super::hint::{Hint, StackHint, is_step};
use crate::snapshot::{Block, ContextId, Lifetime, Lifetimes, LogPosition, StackId, ThreadId};

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HintedLifetime {
    pub(crate) seq: NonZeroU64,
    pub(crate) size: u64,
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    /// The position of its alloc; 0 if it was allocated before the log begins.
    pub(crate) from: LogPosition,
    pub(crate) to: LogPosition,
    pub(super) hint: Hint,
    pub(super) of_stack: StackHint,
}

impl HintedLifetime {
    /// Whether a suballocator holds the block and hands out parts of it. How much of it is in use is not known.
    pub(crate) fn is_given_out(&self) -> bool {
        self.hint == Hint::GivenOut
    }

    pub(crate) fn is_live_at(&self, position: LogPosition) -> bool {
        self.from <= position && position < self.to
    }
}

/// The blocks with the hints of their stacks and contexts, in the order of their allocation.
pub(super) fn hinted(data: &Attribution<'_>, lifetimes: &Lifetimes) -> Vec<HintedLifetime> {
    let steps: Vec<bool> = (0..data.contexts.len() as u32).map(|context| is_step(data, ContextId(context))).collect();
    let mut stacks: Vec<Option<StackHint>> = vec![None; data.stacks.len()];
    let mut hint = |stack: StackId, context: ContextId| {
        let make = || StackHint::of(data, stack);
        let hint = stacks.get_mut(stack.0 as usize).map_or_else(make, |hint| *hint.get_or_insert_with(make));
        let is_step = steps.get(context.0 as usize).is_some_and(|is_step| *is_step);
        (hint.within(is_step), hint)
    };
    let life = |&Lifetime { seq, block, from, to, .. }: &Lifetime| {
        let Block { size, stack, context, thread, .. } = block;
        let (hint, of_stack) = hint(stack, context);
        HintedLifetime { seq, size, stack, context, thread, from, to, hint, of_stack }
    };
    lifetimes.iter().map(life).collect()
}
