//! Stacks with more frames than a thread's own [`LastStack`] has room for.
//!
//! They are taken in the same way, with more room. Every word that leads from frame to frame is compared, even in
//! frames that the [`Collector`] leaves out. So a deep stack costs one comparison per frame.

use super::last::{LastStack, MOST};
use super::rule::{Rule, UnwindStep};
use crate::record::unwind::collector::Collector;

/// Number of frames of the deepest stack that is remembered: a stack of 8 MiB whose frames have 128 bytes.
const MOST_OF_DEEP: usize = 1 << 16;

/// A thread's last deep stack.
pub(in crate::record::unwind) type DeepStack = LastStack<MOST_OF_DEEP>;

impl<const N: usize> LastStack<N> {
    /// A stack whose innermost frame is below this address is likely to be deep.
    pub(super) fn deep_below(&self) -> u64 {
        self.place(MOST).unwrap_or(0)
    }

    /// Takes the frames from `first_step` outwards. False if a step cannot be proven. For the parameters see
    /// [`LastStack::take`].
    pub(super) fn walk(
        &mut self,
        first_step: UnwindStep,
        end: u64,
        collector: &mut Collector<'_>,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> bool {
        match self.take(first_step, end, &mut rule_for, &read) {
            Some(stack) => collector.take_all(stack.addresses),
            None => return each_frame(first_step, end, collector, rule_for, read),
        }
        true
    }
}

/// A walk that remembers nothing.
fn each_frame(
    mut step: UnwindStep,
    end: u64,
    collector: &mut Collector<'_>,
    mut rule_for: impl FnMut(u64) -> Option<Rule>,
    read: impl Fn(u64) -> u64,
) -> bool {
    while collector.take(step.to.ip) {
        let Some(rule) = rule_for(step.to.ip) else { return false };
        match rule.step(step.to, end, &read) {
            Some(next) => step = next,
            None => return rule.is_outermost(),
        }
    }
    true
}
