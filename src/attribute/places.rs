//! Where in the log each place of the program allocated, and each thread.

use std::collections::HashMap;

use super::lives::Life;
use crate::snapshot::{StackId, ThreadId};

/// Positions in the log, in order.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Vec<usize>,
    of_thread: HashMap<ThreadId, Vec<usize>>,
    of_stack: HashMap<StackId, Vec<(usize, usize)>>,
    /// Of each thread, allocations with the positions of their frees.
    ends: HashMap<ThreadId, Vec<(usize, usize)>>,
}

impl Places {
    pub(super) fn of(lives: &[Life]) -> Self {
        let mut places = Self::default();
        for life in lives.iter().filter(|life| life.from > 0) {
            places.all.push(life.from);
            places.of_thread.entry(life.thread).or_default().push(life.from);
            places.of_stack.entry(life.stack).or_default().push((life.from, life.to));
            if life.hint == super::hint::Hint::Backward {
                places.ends.entry(life.thread).or_default().push((life.from, life.to));
            }
        }
        places
    }

    /// How many blocks were allocated between two positions, without the first.
    pub(super) fn allocations(&self, from: usize, to: usize) -> usize {
        let until = |position| self.all.partition_point(|at| *at <= position);
        until(to) - until(from)
    }

    /// Does the thread allocate after this?
    pub(super) fn goes_on(&self, thread: ThreadId, position: usize) -> bool {
        self.of_thread.get(&thread).and_then(|all| all.last()).is_some_and(|last| *last > position)
    }

    fn of_stack(&self, stack: StackId) -> &[(usize, usize)] {
        self.of_stack.get(&stack).map_or(&[], Vec::as_slice)
    }

    /// Does the place allocate between two positions?
    pub(super) fn allocates_between(&self, stack: StackId, from: usize, to: usize) -> bool {
        let all = self.of_stack(stack);
        all.get(all.partition_point(|(at, _)| *at <= from)).is_some_and(|(next, _)| *next < to)
    }

    /// Does the place allocate before a position and after it?
    pub(super) fn allocates_around(&self, stack: StackId, position: usize) -> bool {
        let ends = self.of_stack(stack).first().zip(self.of_stack(stack).last());
        ends.is_some_and(|((first, _), (last, _))| *first < position && position < *last)
    }

    /// Does its place allocate again and again, and is each block gone before the next but one is there?
    pub(super) fn comes_again(&self, life: &Life) -> bool {
        let all = self.of_stack(life.stack);
        let is_gone = |window: &[(usize, usize)]| match window {
            [(_, freed), _, (next_but_one, _)] => freed < next_but_one,
            _ => false,
        };
        all.len() >= 3 && all.windows(3).all(is_gone)
    }

    /// Of the backward pass between two positions, is any block there after the third?
    pub(super) fn outlive(&self, thread: ThreadId, from: usize, to: usize, after: usize) -> bool {
        let all = self.ends.get(&thread).map_or(&[][..], Vec::as_slice);
        let pass = all.get(all.partition_point(|(at, _)| *at < from)..).unwrap_or_default();
        pass.iter().take_while(|(at, _)| *at <= to).any(|(_, freed)| *freed > after)
    }
}
