//! Allocation history of each site and thread, as sorted positions in the log.

use super::hashed::HashMap;
use super::lifetimes::Lifetime;
use crate::snapshot::{StackId, ThreadId};

/// Positions of allocations, sorted. A site is a stack here.
#[derive(Debug, Default)]
pub(super) struct AllocationHistory {
    /// Allocations up to each position.
    until: Vec<u32>,
    stacks: Vec<StackId>,
    of_thread: HashMap<ThreadId, Vec<usize>>,
    of_stack: HashMap<StackId, Vec<(usize, usize)>>,
    /// Allocations in forward passes, judging by the functions on their stacks.
    forward: Vec<usize>,
    habits: HashMap<StackId, Habit>,
    /// Allocations in each thread's backward passes, with the positions of their frees.
    ends: HashMap<ThreadId, Vec<(usize, usize)>>,
}

#[derive(Clone, Copy, Debug)]
struct Habit {
    comes_again: bool,
    is_brief: bool,
    takes_turns: bool,
}

impl AllocationHistory {
    pub(super) fn of(lives: &[Lifetime]) -> Self {
        let mut places = Self::default();
        for life in lives.iter().filter(|life| life.from > 0) {
            let position = life.from;
            if places.until.len() <= position {
                // Lives are in the order of their allocation.
                places.until.resize(position + 1, places.stacks.len() as u32);
            }
            places.until[position] += 1;
            places.stacks.push(life.stack);
            if life.of_stack.in_forward {
                places.forward.push(life.from);
            }
            places.of_thread.entry(life.thread).or_default().push(life.from);
            places.of_stack.entry(life.stack).or_default().push((life.from, life.to));
            if life.hint == super::hint::Hint::Backward {
                places.ends.entry(life.thread).or_default().push((life.from, life.to));
            }
        }
        places.habits = places.of_stack.iter().map(|(stack, blocks)| (*stack, places.habit(blocks))).collect();
        places
    }

    /// Number of allocations after position `from`, up to `to`.
    pub(super) fn allocations(&self, from: usize, to: usize) -> usize {
        self.until(to).saturating_sub(self.until(from))
    }

    fn until(&self, position: usize) -> usize {
        self.until.get(position).or(self.until.last()).map_or(0, |count| *count as usize)
    }

    pub(super) fn goes_on(&self, thread: ThreadId, position: usize) -> bool {
        self.of_thread.get(&thread).and_then(|all| all.last()).is_some_and(|last| *last > position)
    }

    /// Was the block freed before any forward pass could use it, like the source of a conversion of weights?
    pub(super) fn is_gone_unused(&self, life: &Lifetime) -> bool {
        self.forward.get(self.forward.partition_point(|at| *at <= life.from)).is_some_and(|next| life.to < *next)
    }

    /// Does a forward pass allocate during the block's lifetime?
    pub(super) fn spans_forward(&self, life: &Lifetime) -> bool {
        self.forward.get(self.forward.partition_point(|at| *at <= life.from)).is_some_and(|next| *next < life.to)
    }

    /// Is the program not in a loop (such as token generation) during the block's lifetime? In a loop some site allocates often.
    pub(super) fn is_straight(&self, life: &Lifetime) -> bool {
        const MOST: usize = 512;
        const OFTEN: usize = 8;
        let (from, to) = (self.until(life.from), self.until(life.to));
        let mut counts: HashMap<StackId, usize> = HashMap::default();
        let is_rare = |stack: &StackId| {
            let count = counts.entry(*stack).or_default();
            *count += 1;
            *count <= OFTEN
        };
        to - from <= MOST && self.stacks.get(from..to).unwrap_or_default().iter().all(is_rare)
    }

    fn of_stack(&self, stack: StackId) -> &[(usize, usize)] {
        self.of_stack.get(&stack).map_or(&[], Vec::as_slice)
    }

    pub(super) fn allocates_between(&self, stack: StackId, from: usize, to: usize) -> bool {
        let all = self.of_stack(stack);
        all.get(all.partition_point(|(at, _)| *at <= from)).is_some_and(|(next, _)| *next < to)
    }

    pub(super) fn allocates_around(&self, stack: StackId, position: usize) -> bool {
        let ends = self.of_stack(stack).first().zip(self.of_stack(stack).last());
        ends.is_some_and(|((first, _), (last, _))| *first < position && position < *last)
    }

    /// Does the site allocate repeatedly, and is each block freed before the next but one is allocated?
    pub(super) fn comes_again(&self, stack: StackId) -> bool {
        self.habits.get(&stack).is_some_and(|habit| habit.comes_again)
    }

    /// Does the site allocate repeatedly, with each block live for less than half the period of the repetition? Its blocks may
    /// overlap (take turns) only if `may_take_turns`.
    pub(super) fn is_brief(&self, stack: StackId, may_take_turns: bool) -> bool {
        self.habits.get(&stack).is_some_and(|habit| habit.is_brief && (may_take_turns || !habit.takes_turns))
    }

    fn habit(&self, blocks: &[(usize, usize)]) -> Habit {
        let is_gone = |window: &[(usize, usize)]| match window {
            [(_, freed), _, (next_but_one, _)] => freed < next_but_one,
            _ => false,
        };
        let comes_again = blocks.len() >= 3 && blocks.windows(3).all(is_gone);
        let beginnings = beginnings(blocks);
        let takes_turns = beginnings.len() < blocks.len();
        Habit { comes_again, is_brief: self.are_brief(blocks, &beginnings), takes_turns }
    }

    fn are_brief(&self, blocks: &[(usize, usize)], beginnings: &[usize]) -> bool {
        /// Repetitions that count as a pattern.
        const LEAST: usize = 4;
        /// Allocations during the longest brief lifetime.
        const LONGEST: usize = 64;
        let periods: Vec<usize> = beginnings
            .windows(2)
            .map(|pair| match pair {
                [from, next] => self.allocations(*from, *next),
                _ => 0,
            })
            .collect();
        // After the last beginning, the period is that of the one before.
        let period = |from: usize| {
            let at = beginnings.partition_point(|beginning| *beginning <= from).saturating_sub(1);
            periods.get(at).or(periods.last()).copied().unwrap_or(0)
        };
        let is_brief = |(from, to): &(usize, usize)| {
            let lasts = self.allocations(*from, *to);
            *to != usize::MAX && lasts < LONGEST && lasts * 2 <= period(*from)
        };
        beginnings.len() >= LEAST && blocks.iter().all(is_brief)
    }

    /// Is any block of the backward pass between `from` and `to` live at position `after`?
    pub(super) fn outlive(&self, thread: ThreadId, from: usize, to: usize, after: usize) -> bool {
        let all = self.ends.get(&thread).map_or(&[][..], Vec::as_slice);
        let pass = all.get(all.partition_point(|(at, _)| *at < from)..).unwrap_or_default();
        pass.iter().take_while(|(at, _)| *at <= to).any(|(_, freed)| *freed > after)
    }
}

/// Positions at which a site allocates while it has no live block.
fn beginnings(blocks: &[(usize, usize)]) -> Vec<usize> {
    let (mut end, mut beginnings) = (0, Vec::new());
    for (from, to) in blocks {
        if *from > end {
            beginnings.push(*from);
        }
        end = end.max(*to);
    }
    beginnings
}
