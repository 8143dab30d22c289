//! The stacks of threads on which measurements are active.

use super::id::Id;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::unwind::stack::StackPart;

/// An address range, stored as the complements of its bounds. The search through a stack also visits the variables of
/// the searching code, and must not mistake the bounds for addresses that the thread works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    start: u64,
    end: u64,
}

impl Hidden {
    pub(super) const NOWHERE: Self = Self { start: 0, end: u64::MAX };

    fn of(part: StackPart) -> Self {
        Self { start: !part.start, end: !part.end }
    }

    pub(super) fn contains(self, address: u64) -> bool {
        self.end < !address && !address <= self.start
    }

    /// The smallest range that contains both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    pub(super) fn with(self, address: u64) -> Self {
        self.and(Self { start: !address, end: !address - 1 })
    }

    fn is_apart(self, other: Self) -> bool {
        self.end >= other.start || other.end >= self.start
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredStack {
    part: Hidden,
    pub(super) id: Id,
    /// Kernel id of the stack's thread.
    pub(super) os_thread: u32,
}

/// Sorted by age, the newest last.
#[derive(Debug)]
pub(super) struct MeasuredStacks(OwnVec<MeasuredStack>);

impl MeasuredStacks {
    pub(super) const fn new() -> Self {
        Self(OwnVec::new_in(System))
    }

    /// Adds the stack of a thread on which a measurement is active.
    pub(super) fn add(&mut self, id: Id, part: StackPart, os_thread: u32) {
        self.forget_others(part, os_thread);
        try_push(&mut self.0, MeasuredStack { part: Hidden::of(part), id, os_thread });
    }

    /// Forgets other threads that had this stack: they are gone, because this thread has the stack now.
    pub(super) fn forget_others(&mut self, part: StackPart, os_thread: u32) {
        let part = Hidden::of(part);
        self.0.retain(|stack| stack.os_thread == os_thread || stack.part.is_apart(part));
    }

    /// A range that contains all the stacks.
    pub(super) fn span(&self) -> Hidden {
        self.0.iter().fold(Hidden::NOWHERE, |span, stack| span.and(stack.part))
    }

    /// The stack that contains this address. For nested measurements it is that of the inner one, which is the newest.
    pub(super) fn at(&self, address: u64) -> Option<MeasuredStack> {
        self.0.iter().rev().find(|stack| stack.part.contains(address)).copied()
    }

    /// Gives the stacks of a closed measurement to its parent, one per thread. Removes them if there is no parent.
    pub(super) fn hand_over(&mut self, from: Id, to: Id) {
        for index in (0..self.0.len()).rev() {
            let Some(&MeasuredStack { id, os_thread, .. }) = self.0.get(index) else { continue };
            let has_it = self.0.iter().any(|stack| (stack.id, stack.os_thread) == (to, os_thread));
            if id == from && (to == 0 || has_it) {
                self.0.remove(index);
            } else if let Some(stack) = self.0.get_mut(index).filter(|_| id == from) {
                stack.id = to;
            }
        }
    }

    pub(super) fn keep_only(&mut self, ids: &[Id]) {
        self.0.retain(|stack| ids.contains(&stack.id));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
