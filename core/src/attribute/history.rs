//! The allocation history of each site and thread, as sorted positions in the log.

use std::cell::{OnceCell, RefCell};

use super::lifetimes::HintedLifetime;
use crate::hashed::HashMap;
use crate::snapshot::{LogPosition, NEVER, StackId, ThreadId};

/// Sorted positions of allocations. Here, a *site* is a stack.
#[derive(Debug, Default)]
pub(super) struct AllocationHistory {
    /// Number of allocations up to each position.
    until: Vec<u32>,
    stacks: Vec<StackId>,
    /// The last allocation of each thread.
    last: HashMap<ThreadId, LogPosition>,
    /// Sites whose repetition matters.
    of_stack: HashMap<StackId, SiteHistory>,
    /// Allocations in forward passes, according to the functions on their stacks.
    forward: Vec<LogPosition>,
    /// Allocations in each thread's backward passes, with the positions of their frees.
    ends: HashMap<ThreadId, Vec<(LogPosition, LogPosition)>>,
    /// Cached results of [`outlive`](Self::outlive).
    outlived: RefCell<HashMap<(ThreadId, LogPosition, LogPosition, LogPosition), bool>>,
}

#[derive(Debug, Default)]
struct SiteHistory {
    blocks: Vec<(LogPosition, LogPosition)>,
    habit: OnceCell<Habit>,
}

#[derive(Clone, Copy, Debug)]
struct Habit {
    comes_again: bool,
    is_brief: bool,
    takes_turns: bool,
}

impl AllocationHistory {
    pub(super) fn of(lives: &[HintedLifetime]) -> Self {
        let (mut places, mut last) = (Self::default(), None);
        for life in lives.iter().filter(|life| life.from > 0) {
            let position = life.from as usize;
            if places.until.len() <= position {
                // Lifetimes are in the order of their allocation.
                places.until.resize(position + 1, places.stacks.len() as u32);
            }
            places.until[position] += 1;
            places.stacks.push(life.stack);
            if life.of_stack.in_forward {
                places.forward.push(life.from);
            }
            if let Some((thread, from)) =
                last.replace((life.thread, life.from)).filter(|(thread, _)| *thread != life.thread)
            {
                places.last.insert(thread, from);
            }
            if life.of_stack.may_repeat() {
                places.of_stack.entry(life.stack).or_default().blocks.push((life.from, life.to));
            }
            if life.hint == super::hint::Hint::Backward {
                places.ends.entry(life.thread).or_default().push((life.from, life.to));
            }
        }
        places.last.extend(last);
        places
    }

    /// Number of allocations after position `from`, up to `to`.
    pub(super) fn allocations(&self, from: LogPosition, to: LogPosition) -> usize {
        self.until(to).saturating_sub(self.until(from))
    }

    fn until(&self, position: LogPosition) -> usize {
        self.until.get(position as usize).or(self.until.last()).map_or(0, |count| *count as usize)
    }

    pub(super) fn goes_on(&self, thread: ThreadId, position: LogPosition) -> bool {
        self.last.get(&thread).is_some_and(|last| *last > position)
    }

    /// Whether the block was freed before any forward pass could use it, like the source of a conversion of weights.
    pub(super) fn is_gone_unused(&self, life: &HintedLifetime) -> bool {
        self.forward.get(self.forward.partition_point(|at| *at <= life.from)).is_some_and(|next| life.to < *next)
    }

    /// Whether a forward pass allocates during the block's lifetime.
    pub(super) fn spans_forward(&self, life: &HintedLifetime) -> bool {
        self.forward.get(self.forward.partition_point(|at| *at <= life.from)).is_some_and(|next| *next < life.to)
    }

    /// Whether the program is not in a loop (such as token generation) during the block's lifetime. In a loop, some
    /// site allocates often.
    pub(super) fn is_straight(&self, life: &HintedLifetime) -> bool {
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

    fn of_stack(&self, stack: StackId) -> &[(LogPosition, LogPosition)] {
        self.of_stack.get(&stack).map_or(&[], |site| &site.blocks)
    }

    pub(super) fn allocates_between(&self, stack: StackId, from: LogPosition, to: LogPosition) -> bool {
        let all = self.of_stack(stack);
        all.get(all.partition_point(|(at, _)| *at <= from)).is_some_and(|(next, _)| *next < to)
    }

    pub(super) fn allocates_around(&self, stack: StackId, position: LogPosition) -> bool {
        let ends = self.of_stack(stack).first().zip(self.of_stack(stack).last());
        ends.is_some_and(|((first, _), (last, _))| *first < position && position < *last)
    }

    /// Whether the site allocates repeatedly, and each block is freed before the next but one is allocated.
    pub(super) fn comes_again(&self, stack: StackId) -> bool {
        self.habit(stack).is_some_and(|habit| habit.comes_again)
    }

    /// Whether the site allocates at most one more block while the block is live.
    pub(super) fn is_replaced(&self, stack: StackId, from: LogPosition, to: LogPosition) -> bool {
        let all = self.of_stack(stack);
        all.get(all.partition_point(|(at, _)| *at <= from) + 1).is_none_or(|(next_but_one, _)| to < *next_but_one)
    }

    /// Whether the site has at least three blocks, so that it can have a pattern.
    pub(super) fn repeats(&self, stack: StackId) -> bool {
        self.of_stack(stack).len() >= 3
    }

    /// Whether the site allocates repeatedly, and each block is live for at most half the period of the repetition.
    /// Without `may_take_turns`, the blocks of the site must not be live at the same time.
    pub(super) fn is_brief(&self, stack: StackId, may_take_turns: bool) -> bool {
        self.habit(stack).is_some_and(|habit| habit.is_brief && (may_take_turns || !habit.takes_turns))
    }

    fn habit(&self, stack: StackId) -> Option<Habit> {
        let site = self.of_stack.get(&stack)?;
        Some(*site.habit.get_or_init(|| self.habit_of(&site.blocks)))
    }

    fn habit_of(&self, blocks: &[(LogPosition, LogPosition)]) -> Habit {
        let is_gone = |window: &[(LogPosition, LogPosition)]| match window {
            [(_, freed), _, (next_but_one, _)] => freed < next_but_one,
            _ => false,
        };
        let comes_again = blocks.len() >= 3 && blocks.windows(3).all(is_gone);
        let beginnings = beginnings(blocks);
        let takes_turns = beginnings.len() < blocks.len();
        Habit { comes_again, is_brief: self.are_brief(blocks, &beginnings), takes_turns }
    }

    fn are_brief(&self, blocks: &[(LogPosition, LogPosition)], beginnings: &[LogPosition]) -> bool {
        /// The fewest repetitions that count as a pattern.
        const LEAST: usize = 4;
        /// A brief lifetime contains fewer allocations than this.
        const LONGEST: usize = 64;
        let periods: Vec<usize> = beginnings
            .windows(2)
            .map(|pair| match pair {
                [from, next] => self.allocations(*from, *next),
                _ => 0,
            })
            .collect();
        // The last beginning has no period of its own, so the period before it is used.
        let period = |from: LogPosition| {
            let at = beginnings.partition_point(|beginning| *beginning <= from).saturating_sub(1);
            periods.get(at).or(periods.last()).copied().unwrap_or(0)
        };
        let is_brief = |(from, to): &(LogPosition, LogPosition)| {
            let lasts = self.allocations(*from, *to);
            *to != NEVER && lasts < LONGEST && lasts * 2 <= period(*from)
        };
        beginnings.len() >= LEAST && blocks.iter().all(is_brief)
    }

    /// Whether any block of the backward pass between `from` and `to` is live at position `after`.
    pub(super) fn outlive(&self, thread: ThreadId, from: LogPosition, to: LogPosition, after: LogPosition) -> bool {
        // This is asked with the same arguments for all blocks of a pass, so the result is kept.
        *self.outlived.borrow_mut().entry((thread, from, to, after)).or_insert_with(|| {
            let all = self.ends.get(&thread).map_or(&[][..], Vec::as_slice);
            let pass = all.get(all.partition_point(|(at, _)| *at < from)..).unwrap_or_default();
            pass.iter().take_while(|(at, _)| *at <= to).any(|(_, freed)| *freed > after)
        })
    }
}

/// Positions at which a site allocates while it has no live block.
fn beginnings(blocks: &[(LogPosition, LogPosition)]) -> Vec<LogPosition> {
    let (mut end, mut beginnings) = (0, Vec::new());
    for (from, to) in blocks {
        if *from > end {
            beginnings.push(*from);
        }
        end = end.max(*to);
    }
    beginnings
}
