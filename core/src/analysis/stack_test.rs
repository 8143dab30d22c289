//! Predicates on stacks, evaluated once for each stack, because many records share one.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::snapshot::StackId;

/// A cached predicate on stacks.
pub(crate) struct StackTest<F> {
    is_so: F,
    known: HashMap<StackId, bool, RandomState>,
}

impl<F: Fn(StackId) -> bool> StackTest<F> {
    pub(crate) fn that(is_so: F) -> Self {
        Self { is_so, known: HashMap::default() }
    }

    pub(crate) fn has(&mut self, stack: StackId) -> bool {
        *self.known.entry(stack).or_insert_with(|| (self.is_so)(stack))
    }
}
