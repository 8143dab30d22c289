//! Facts about a block's lifetime, from the evidence.

use super::work::Work;
use crate::attribute::hint::Hint;
use crate::attribute::lifetimes::HintedLifetime;
use crate::snapshot::{LogPosition, NEVER};

/// A block that is freed before this many further blocks are allocated was needed only briefly.
const SOON: usize = 10;

impl Work {
    /// Whether it was freed before any thread allocated [`SOON`] more blocks, and not because its own thread ended.
    pub(super) fn is_soon_freed(&self, life: &HintedLifetime) -> bool {
        self.is_short(life) && self.history.goes_on(life.thread, life.to)
    }

    pub(super) fn is_short(&self, life: &HintedLifetime) -> bool {
        let is_finite = life.from > 0 && life.to != NEVER;
        is_finite && self.history.allocations(life.from, life.to) < SOON
    }

    pub(super) fn is_temporary(&self, life: &HintedLifetime) -> bool {
        let is_short = || match self.is_within_its_scope(life) {
            Some(is_within) => is_within && (self.is_short(life) || self.history.is_straight(life)),
            None => self.is_soon_freed(life),
        };
        // A batch picked from a data set is freed together with the pass that uses it.
        let may_be_input = life.of_stack.moves && !life.of_stack.in_forward && self.history.spans_forward(life);
        !may_be_input && !self.prefixes.contains(&life.seq) && (is_short() || self.is_brief(life))
    }

    /// Whether it is a result of a model that no backward pass uses. The result might be part of a cache, so there
    /// must be no growing cache in the recording.
    pub(super) fn is_of_inference(&self, life: &HintedLifetime) -> bool {
        life.of_stack.in_forward && life.hint == Hint::Forward && !life.of_stack.moves && self.caches.is_empty()
    }

    /// Whether the block is a result of a model, and its site allocates again after the block was freed.
    pub(super) fn comes_again(&self, life: &HintedLifetime) -> bool {
        life.of_stack.in_forward && self.history.allocates_between(life.stack, life.to, NEVER)
    }

    /// Whether its site allocates repeatedly, for a short time each. In training, gradients that the program processes
    /// look the same, so the block must then be part of a forward pass. It must also be if blocks of the site are live
    /// at the same time, as sums are.
    fn is_brief(&self, life: &HintedLifetime) -> bool {
        let trains = self.backward.get(&life.thread).is_some_and(|passes| !passes.is_empty());
        (life.of_stack.in_forward || !trains)
            && self.history.is_brief(life.stack, life.of_stack.in_forward && life.hint == Hint::Forward)
    }

    /// Whether the block belongs to a forward pass. Its stack says so, or the pass had begun before the block, and the
    /// block's site also allocated before the thread's first backward pass, when there was nothing to update yet.
    pub(super) fn is_of_forward_pass(&self, life: &HintedLifetime, next: LogPosition) -> bool {
        let first = self.backward.get(&life.thread).and_then(|passes| passes.first());
        let recurs = first.is_some_and(|first| self.history.allocates_around(life.stack, first.from));
        life.of_stack.in_forward || recurs && self.has_begun(life, next)
    }

    /// Whether the forward pass before the backward pass at `next` had begun before the block.
    pub(super) fn has_begun(&self, life: &HintedLifetime, next: LogPosition) -> bool {
        self.forward.get(&(life.thread, next)).is_some_and(|begins| *begins < life.from)
    }

    /// Whether the block was freed before the program left the block's innermost scope that is not a module. `None`
    /// outside of all scopes. Also `None` for a freed block whose scope was entered only once, because that scope may
    /// be the whole program.
    fn is_within_its_scope(&self, life: &HintedLifetime) -> Option<bool> {
        let own = (*self.own_scopes.get(life.context.0 as usize)?)?;
        let exits = self.exits.get(&(life.thread, own))?;
        let left = exits.get(exits.partition_point(|at| *at < life.from))?;
        match life.to <= *left {
            false => Some(false),
            true if exits.len() > 1 => Some(true),
            true => None,
        }
    }
}
