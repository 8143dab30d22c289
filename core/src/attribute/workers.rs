//! Blocks of worker threads. If a thread of a thread pool allocates a block for an operator that another thread
//! called, the block belongs to the pass of the calling thread.

use super::lifetimes::HintedLifetime;
use super::passes::{Passes, is_in_pass};
use crate::hashed::HashSet;
use crate::snapshot::{LogPosition, ThreadId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOf {
    /// A backward pass.
    Backward,
    /// One operator call outside of backward passes.
    Operator,
    /// Unclear: several threads of the program work, and one of them is in a backward pass.
    Either,
    Nothing,
}

/// The work of the program's own threads.
#[derive(Debug, Default)]
pub(super) struct ProgramsWork {
    threads: HashSet<ThreadId>,
    /// Sorted positions of its allocations.
    allocations: Vec<LogPosition>,
}

impl ProgramsWork {
    pub(super) fn of(lives: &[HintedLifetime]) -> Self {
        let is_one = |life: &&HintedLifetime| life.from > 0 && life.hint.is_work() && !life.of_stack.is_workers;
        let mut work = Self::default();
        for life in lives.iter().filter(is_one) {
            work.threads.insert(life.thread);
            work.allocations.push(life.from);
        }
        work
    }

    /// What the program's own threads were doing when a worker allocated this block.
    pub(super) fn around(&self, life: &HintedLifetime, backward: &Passes) -> PartOf {
        match backward.keys().any(|thread| is_in_pass(backward, *thread, life.from)) {
            true if self.threads.len() == 1 => PartOf::Backward,
            true => PartOf::Either,
            false if self.threads.len() == 1 && self.is_within_an_operator(life) => PartOf::Operator,
            false => PartOf::Nothing,
        }
    }

    fn is_within_an_operator(&self, life: &HintedLifetime) -> bool {
        let next = self.allocations.get(self.allocations.partition_point(|at| *at <= life.from));
        next.is_some_and(|next| life.to < *next)
    }
}
