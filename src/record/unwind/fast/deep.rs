//! Stacks of more frames than are kept: where a walk comes by a frame of the last one, both go on in the same way.
//!
//! Of such a stack the innermost frames are kept, which are walked each time, and the outermost ones, which are a
//! [`LastStack`] of their own: they are what they were if every word is that they were read from. What lies between is
//! not kept. It matters for where it leads to alone, and that is known of frames that the last walk has marked. (What is
//! taken for granted by that stands in ARCHITECTURE.md, *The way of a stack*.)
//!
//! A mark is the outermost frame in a cell, a piece of the stack of 4 KiB. So a walk finds one soon after it has what it
//! has to walk, marks take a few bytes for each cell, and are where they were whatever lies further in.

use super::last::{LastStack, MOST};
use super::rule::{Rule, Step};
use crate::record::memory::{OwnVec, try_push};
use crate::record::unwind::collector::Collector;
use crate::record::unwind::registers::Registers;

const CELL_BITS: u32 = 12;
const NO_MARK: Registers = Registers { ip: 0, sp: 0, bp: 0 };

/// Zeros are none.
#[derive(Debug)]
pub(super) struct Ends {
    outer: LastStack,
    /// Led to the innermost of those.
    entered: Step,
    /// The last steps of a walk, each at its number's remainder.
    recent: [Step; MOST],
}

#[cfg(test)]
impl Ends {
    pub(super) const fn new() -> Self {
        const NOWHERE: Step = Step { to: NO_MARK, bp_from: 0 };
        Self { outer: LastStack::new(), entered: NOWHERE, recent: [NOWHERE; MOST] }
    }
}

/// What is known of a thread's last stack that was deep.
#[derive(Debug)]
pub(in crate::record::unwind) struct DeepStack<'a> {
    /// By cell, from the outermost on: frames that lead to those which are kept.
    pub(super) marks: &'a mut OwnVec<Registers>,
    pub(super) ends: &'a mut Ends,
}

/// How a walk ended.
enum Walked {
    /// At a frame that is known, and so are those outside.
    Known,
    /// With the outermost frame, after so many.
    Whole(usize),
    Unproven,
}

fn cell(sp: u64, end: u64) -> usize {
    (end.saturating_sub(sp) >> CELL_BITS) as usize
}

impl DeepStack<'_> {
    /// Stacks whose innermost frame lies below this address are likely to be deep.
    pub(super) fn deep_below(&self) -> u64 {
        if self.marks.is_empty() { 0 } else { self.ends.entered.to.sp }
    }

    /// Takes the frames from the one on that a first step led to; false if a step could not be proven. What is passed is
    /// as in [`LastStack::take`].
    pub(super) fn walk(
        &mut self,
        first: Step,
        end: u64,
        collector: &mut Collector<'_>,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> bool {
        // What lay further in is gone.
        self.marks.truncate(cell(first.to.sp, end) + 1);
        let walked = self.frames(first, end, collector, &mut rule_for, &read);
        let marks_hold = match walked {
            Walked::Known => true,
            Walked::Whole(frames) => {
                frames > MOST && {
                    self.ends.entered = self.ends.recent.get(frames % MOST).copied().unwrap_or(first);
                    self.ends.outer.take(self.ends.entered, end, rule_for, read).is_some()
                }
            }
            Walked::Unproven => false,
        };
        if !marks_hold {
            self.marks.clear();
        }
        !matches!(walked, Walked::Unproven)
    }

    fn frames(
        &mut self,
        mut step: Step,
        end: u64,
        collector: &mut Collector<'_>,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> Walked {
        let (mut frames, mut known) = (0, true);
        loop {
            let at = step.to;
            if known && collector.needs_only_outermost(MOST) && self.is_marked(at, end) {
                known = self.is_known_from(at, collector, &read);
                if known {
                    return Walked::Known;
                }
            }
            if !collector.take(at.ip) {
                return self.whole(at, end, frames);
            }
            if let Some(recent) = self.ends.recent.get_mut(frames % MOST) {
                *recent = step;
            }
            frames += 1;
            let Some(rule) = rule_for(at.ip) else { return Walked::Unproven };
            step = match rule.step(at, end, &read) {
                Some(next) => next,
                None if rule.is_outermost() => return self.whole(at, end, frames),
                None => return Walked::Unproven,
            };
            self.mark(at, cell(at.sp, end), cell(step.to.sp, end));
        }
    }

    fn is_marked(&self, at: Registers, end: u64) -> bool {
        self.marks.get(cell(at.sp, end)) == Some(&at)
    }

    /// Takes the outermost frames, if this one is further in and they are what they were.
    fn is_known_from(&self, at: Registers, collector: &mut Collector<'_>, read: impl Fn(u64) -> u64) -> bool {
        let Ends { outer, entered, .. } = &*self.ends;
        let same = if at.sp < entered.to.sp { outer.again(read) } else { None };
        same.is_some_and(|stack| collector.end_with(stack.addresses))
    }

    /// Marks a frame, if the next one outside of it is in another cell; in those between there is none.
    fn mark(&mut self, at: Registers, from: usize, to: usize) {
        if from == to {
            return;
        }
        while self.marks.len() <= from && try_push(self.marks, NO_MARK) {}
        if let Some(between) = self.marks.get_mut(to.saturating_add(1)..from) {
            between.fill(NO_MARK);
        }
        if let Some(mark) = self.marks.get_mut(from) {
            *mark = at;
        }
    }

    /// A walk ended here, at the outermost frame or outside of it: there is no mark from here on.
    fn whole(&mut self, last: Registers, end: u64, frames: usize) -> Walked {
        self.marks.iter_mut().take(cell(last.sp, end) + 1).for_each(|mark| *mark = NO_MARK);
        Walked::Whole(frames)
    }
}
