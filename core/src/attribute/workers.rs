//! Blocks of worker threads: what a thread of a pool allocates for an operator that another thread runs belongs to that thread's pass.

use super::lifetimes::HintedLifetime;
use super::passes::{Passes, is_in_pass};
use crate::hashed::HashSet;
use crate::snapshot::{LogPosition, ThreadId};

/// What a worker's block is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOf {
    /// A backward pass.
    Backward,
    /// One operator of other work.
    Operator,
    /// Several threads of the program work, of which one is in a backward pass.
    Either,
    Nothing,
}

/// The work of the program's own threads.
#[derive(Debug, Default)]
pub(super) struct ProgramsWork {
    threads: HashSet<ThreadId>,
    /// Positions of its allocations, sorted.
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

    /// `life` is a worker's.
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
