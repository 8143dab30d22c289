//! What stands for the unwinder where there is none of our own: it never proves anything.

use super::collector::{CapturedStack, Collector};
use super::registers::Registers;
use super::stack::{Known, Stack, StackPart, Taken};

/// Unknown.
pub(in crate::record) fn each_word(_each: impl FnMut(u64, u64)) {}

/// Unknown.
pub(in crate::record) fn thread_begins() {}

/// Nobody looks at it.
pub(in crate::record) fn clear_unused_stack() {}

/// Unknown.
pub(in crate::record) fn was_held_at_first(_word: u64, _at: u64, _of_parent: bool) -> bool {
    false
}

/// Unknown.
pub(in crate::record) fn part_from_here() -> Option<StackPart> {
    None
}

/// Unknown.
pub(in crate::record) fn whole_stack() -> Option<StackPart> {
    None
}

#[derive(Debug)]
pub(super) struct DeepStack<'a>(std::marker::PhantomData<&'a ()>);

pub(super) fn with_room<T>(work: impl FnOnce(&mut CapturedStack, Option<DeepStack<'_>>) -> T) -> T {
    work(&mut CapturedStack::empty(), None)
}

pub(super) fn walk(_start: Registers, _deep: DeepStack<'_>, _collector: &mut Collector<'_>) -> bool {
    false
}

pub(super) fn with_last<T, F: FnOnce(Stack<'_>) -> T>(_start: Registers, _depth: usize, work: F) -> Result<T, F> {
    Err(work)
}

pub(super) fn with_taken<'a, T, F: FnOnce(Taken<'_>) -> T>(
    _start: Registers,
    _depth: usize,
    _guess: impl FnOnce(u64) -> Option<Known<'a>>,
    work: F,
) -> Result<T, F> {
    Err(work)
}

pub(super) fn guessed<'a>(
    _start: Registers,
    _depth: usize,
    _guess: impl FnOnce(u64) -> Option<Known<'a>>,
) -> Option<Known<'a>> {
    None
}
