//! Stacks of threads that a measurement is in force on.

use super::id::Id;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::unwind::stack::StackPart;

/// A part of memory, as the complements of its bounds: the search through what a thread holds comes upon what the search
/// itself has on the stack, and an address of a measurement there would be taken for one that the thread works with.
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

    /// With this one.
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
    /// The system's number of its thread.
    pub(super) os_thread: u32,
}

/// All of them, the newest last.
#[derive(Debug)]
pub(super) struct Stacks(OwnVec<MeasuredStack>);

impl Stacks {
    pub(super) const fn new() -> Self {
        Self(OwnVec::new_in(System))
    }

    /// A measurement is in force on the thread that has this stack.
    pub(super) fn add(&mut self, id: Id, part: StackPart, os_thread: u32) {
        self.forget_others(part, os_thread);
        try_push(&mut self.0, MeasuredStack { part: Hidden::of(part), id, os_thread });
    }

    /// This thread has the stack: another one whose it was has ended.
    pub(super) fn forget_others(&mut self, part: StackPart, os_thread: u32) {
        let part = Hidden::of(part);
        self.0.retain(|stack| stack.os_thread == os_thread || stack.part.is_apart(part));
    }

    /// All lie in there.
    pub(super) fn span(&self) -> Hidden {
        self.0.iter().fold(Hidden::NOWHERE, |span, stack| span.and(stack.part))
    }

    /// The one that an address is in. Of measurements inside each other it is the inner one's, which is the newest.
    pub(super) fn at(&self, address: u64) -> Option<MeasuredStack> {
        self.0.iter().rev().find(|stack| stack.part.contains(address)).copied()
    }

    /// Those of a measurement that is closed become its parent's, once each; they go if there is none.
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
