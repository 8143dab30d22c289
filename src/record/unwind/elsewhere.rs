//! Substitute for `fast` on other platforms. It can take no stack, so the module `library` takes all stacks.

use super::collector::{CapturedStack, Collector};
use super::registers::Registers;
use super::stack::{FoundStack, KnownStack, PredictStack, Stack, StackPart};

impl Registers {
    /// A stack pointer below every stack, so that `library` takes the whole stack.
    pub(super) fn here() -> Self {
        Self { ip: 0, sp: 0, fp: 0 }
    }
}

pub(in crate::record) fn each_word(_each: impl FnMut(u64, u64)) {}

pub(in crate::record) fn on_thread_start() {}

pub(in crate::record) fn clear_unused_stack() {}

pub(in crate::record) fn was_held_at_start(_word: u64, _at: u64, _of_parent: bool) -> bool {
    false
}

pub(in crate::record) fn part_from_here() -> Option<StackPart> {
    None
}

pub(in crate::record) fn whole_stack() -> Option<StackPart> {
    None
}

pub(super) type DeepStack = ();

pub(super) fn with_scratch<T>(work: impl FnOnce(&mut CapturedStack, Option<&mut DeepStack>) -> T) -> T {
    work(&mut CapturedStack::empty(), None)
}

pub(super) fn walk(_start: Registers, _deep: &mut DeepStack, _collector: &mut Collector<'_>) -> bool {
    false
}

pub(super) fn with_last<T, F: FnOnce(Stack<'_>) -> T>(_start: Registers, _depth: usize, work: F) -> Result<T, F> {
    Err(work)
}

pub(super) fn with_taken<'a, T, F: FnOnce(FoundStack<'_>) -> T>(
    _start: Registers,
    _depth: usize,
    _prediction: impl PredictStack<'a>,
    work: F,
) -> Result<T, F> {
    Err(work)
}

pub(super) fn predicted<'a>(
    _start: Registers,
    _depth: usize,
    _prediction: impl PredictStack<'a>,
) -> Option<KnownStack<'a>> {
    None
}
