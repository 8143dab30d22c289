//! Incremental unwinding of deep stacks, of which only the innermost and outermost frames are kept; takes the same time
//! at any depth.
//!
//! The innermost frames are walked each time, up to a frame that the last walk *marked*: one per cell, 4 KiB of stack.
//! The outermost frames are a [`LastStack`] of their own, whose words are all compared. Frames in between matter only
//! for where they lead. Frames that a walk has shown to be gone lose their marks.
//!
//! One thing is assumed that is proven for stacks of up to 128 frames: a marked frame that is there again, at the same
//! address with the same rbp, still leads to outermost frames whose words are unchanged. It would not if the thread
//! had, with nothing recorded meanwhile, returned as far as those frames, laid one frame over many of them without
//! writing to their words, and come back to the same frames at the same addresses; or in a coroutine on a piece of the
//! thread's own stack where deep recursion of the same functions was recorded before at the same addresses.
//! `MEMTRACE_CHECK_STACKS=1` would report it.

use super::last::{LastStack, MOST};
use super::rule::{Rule, UnwindStep};
use crate::record::memory::{OwnVec, try_push};
use crate::record::unwind::collector::Collector;
use crate::record::unwind::registers::Registers;

const CELL_BITS: u32 = 12;
const NO_MARK: Registers = Registers { ip: 0, sp: 0, bp: 0 };

/// All zeros is a valid empty value.
#[derive(Debug)]
pub(super) struct Ends {
    outer: LastStack,
    /// The step to the innermost frame of `outer`.
    entered: UnwindStep,
    /// Ring of the last steps of a walk.
    recent: [UnwindStep; MOST],
}

#[cfg(test)]
impl Ends {
    pub(super) const fn new() -> Self {
        const NOWHERE: UnwindStep = UnwindStep { to: NO_MARK, bp_from: 0 };
        Self { outer: LastStack::new(), entered: NOWHERE, recent: [NOWHERE; MOST] }
    }
}

/// A thread's last deep stack.
#[derive(Debug)]
pub(in crate::record::unwind) struct DeepStack<'a> {
    /// By cell, the outermost first: frames that lead to `ends.outer`.
    pub(super) marks: &'a mut OwnVec<Registers>,
    pub(super) ends: &'a mut Ends,
}

/// How a walk ended.
enum WalkEnd {
    /// At a marked frame; the outermost frames are unchanged.
    Known,
    /// At the outermost frame, after this many frames.
    Whole(usize),
    Unproven,
}

fn cell(sp: u64, end: u64) -> usize {
    (end.saturating_sub(sp) >> CELL_BITS) as usize
}

impl DeepStack<'_> {
    /// A stack whose innermost frame is below this address is likely to be deep.
    pub(super) fn deep_below(&self) -> u64 {
        if self.marks.is_empty() { 0 } else { self.ends.entered.to.sp }
    }

    /// Takes the frames from `first` outwards; false if a step cannot be proven. For the parameters see
    /// [`LastStack::take`].
    pub(super) fn walk(
        &mut self,
        first: UnwindStep,
        end: u64,
        collector: &mut Collector<'_>,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> bool {
        // Frames further in are gone.
        self.marks.truncate(cell(first.to.sp, end) + 1);
        let walked = self.frames(first, end, collector, &mut rule_for, &read);
        let marks_hold = match walked {
            WalkEnd::Known => true,
            WalkEnd::Whole(frames) => {
                frames > MOST && {
                    self.ends.entered = self.ends.recent.get(frames % MOST).copied().unwrap_or(first);
                    self.ends.outer.take(self.ends.entered, end, rule_for, read).is_some()
                }
            }
            WalkEnd::Unproven => false,
        };
        if !marks_hold {
            self.marks.clear();
        }
        !matches!(walked, WalkEnd::Unproven)
    }

    fn frames(
        &mut self,
        mut step: UnwindStep,
        end: u64,
        collector: &mut Collector<'_>,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> WalkEnd {
        let (mut frames, mut known) = (0, true);
        loop {
            let at = step.to;
            if known && collector.needs_only_outermost(MOST) && self.is_marked(at, end) {
                known = self.is_known_from(at, collector, &read);
                if known {
                    return WalkEnd::Known;
                }
            }
            if !collector.take(at.ip) {
                return self.whole(at, end, frames);
            }
            if let Some(recent) = self.ends.recent.get_mut(frames % MOST) {
                *recent = step;
            }
            frames += 1;
            let Some(rule) = rule_for(at.ip) else { return WalkEnd::Unproven };
            step = match rule.step(at, end, &read) {
                Some(next) => next,
                None if rule.is_outermost() => return self.whole(at, end, frames),
                None => return WalkEnd::Unproven,
            };
            self.mark(at, cell(at.sp, end), cell(step.to.sp, end));
        }
    }

    fn is_marked(&self, at: Registers, end: u64) -> bool {
        self.marks.get(cell(at.sp, end)) == Some(&at)
    }

    /// Completes the stack with the outermost frames, if they are further out and unchanged.
    fn is_known_from(&self, at: Registers, collector: &mut Collector<'_>, read: impl Fn(u64) -> u64) -> bool {
        let Ends { outer, entered, .. } = &*self.ends;
        let same = if at.sp < entered.to.sp { outer.again(read) } else { None };
        same.is_some_and(|stack| collector.end_with(stack.addresses))
    }

    /// Marks a frame whose caller is in another cell; cells in between get no mark.
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

    /// The walk ended at the outermost frame: no marks from here outwards.
    fn whole(&mut self, last: Registers, end: u64, frames: usize) -> WalkEnd {
        self.marks.iter_mut().take(cell(last.sp, end) + 1).for_each(|mark| *mark = NO_MARK);
        WalkEnd::Whole(frames)
    }
}
