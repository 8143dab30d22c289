//! Call sites of operators, for each stack.

use crate::attribute::{self, Attribution, allocates_once};
use crate::numbered::Numbered;
use crate::snapshot::{Frame, StackId};

/// An operator and the calls outside of it. All stacks of one operator call have the same key.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key<'a> {
    operator: &'a str,
    is_backward: bool,
    /// Frames that the operator was inlined into, innermost first.
    around: &'a [Frame],
    /// The calls outside of those frames.
    outside: &'a [u32],
}

#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) number: usize,
    pub(super) operator: &'a str,
    pub(super) is_backward: bool,
    /// Whether an operator call allocates with this stack only once.
    pub(super) is_once: bool,
}

/// The call site of each stack that belongs to an operator.
pub(super) struct Sites<'a>(Vec<Option<Site<'a>>>);

impl<'a> Sites<'a> {
    pub(super) fn of(data: &'a Attribution<'a>) -> Self {
        let mut numbers = Numbered::<Key<'a>>::default();
        let mut site = |(stack, calls)| {
            let key = key(data, StackId(stack), calls)?;
            let (operator, is_backward, number) = (key.operator, key.is_backward, numbers.number(key));
            Some(Site { number, operator, is_backward, is_once: allocates_once(data, StackId(stack), operator) })
        };
        Self((0u32..).zip(data.stacks.each_calls()).map(&mut site).collect())
    }

    pub(super) fn at(&self, stack: StackId) -> Option<Site<'a>> {
        self.0.get(stack.0 as usize).copied().flatten()
    }
}

/// The key of a stack. `None` if it has no operator, also if a backward pass itself allocates the block.
fn key<'a>(data: &'a Attribution<'a>, stack: StackId, calls: &'a [u32]) -> Option<Key<'a>> {
    let operator = attribute::operator(data, stack)?;
    let is_root = |frame: &Frame| frame.function_or_empty().as_bytes().as_ptr_range().contains(&operator.root.as_ptr());
    let frames = |call: u32| data.stacks.addresses.get(call as usize).map_or(&[][..], |at| data.stacks.frames_at(at));
    let root = |(at, call): (usize, &u32)| Some((at, frames(*call).iter().rposition(is_root)?));
    let (at, frame) = calls.iter().enumerate().rev().find_map(root)?;
    let around = calls.get(at).and_then(|call| frames(*call).get(frame + 1..)).unwrap_or(&[]);
    let (operator, is_backward) = (operator.root, operator.is_backward);
    Some(Key { operator, is_backward, around, outside: calls.get(at + 1..).unwrap_or(&[]) })
}
