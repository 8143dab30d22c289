//! Stacks of threads that a measurement is in force on.

use super::registry::Id;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::unwind::StackPart;

#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredStack {
    part: StackPart,
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
        try_push(&mut self.0, MeasuredStack { part, id, os_thread });
    }

    /// This thread has the stack: another one whose it was has ended.
    pub(super) fn forget_others(&mut self, part: StackPart, os_thread: u32) {
        let is_elsewhere = |other: StackPart| other.end <= part.start || part.end <= other.start;
        self.0.retain(|stack| stack.os_thread == os_thread || is_elsewhere(stack.part));
    }

    /// The lowest address of all; the highest there is if there are none.
    pub(super) fn start(&self) -> u64 {
        self.0.iter().map(|stack| stack.part.start).min().unwrap_or(u64::MAX)
    }

    /// All lie below this.
    pub(super) fn end(&self) -> u64 {
        self.0.iter().map(|stack| stack.part.end).max().unwrap_or(0)
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
