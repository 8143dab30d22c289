//! The steps of a backward pass: stretches of its blocks that one run of an arm allocated.
//!
//! A step ends where the pass reaches another arm, goes back to before the first line of the step, or allocates by a stack
//! that the step has used. `cat` has a loop over its operands, so its step ends with the arm only.

use std::num::NonZeroU64;

use super::super::hashed::HashSet;
use super::sites::{Site, Sites};
use crate::snapshot::{Lifetime, StackId};

/// The arm that has a loop.
const LOOP: &str = "cat";

/// The blocks of one run of an arm, as far as they are recorded.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) arm: &'a str,
    pub(super) blocks: Vec<NonZeroU64>,
    /// Sizes of new gradients, filled with zeros.
    pub(super) zeros: Vec<u64>,
    /// Sizes of sums.
    pub(super) sums: Vec<u64>,
    first_line: u32,
    stacks: HashSet<StackId>,
}

impl<'a> Step<'a> {
    fn new(site: Site<'a>) -> Self {
        let (blocks, zeros, sums) = (Vec::new(), Vec::new(), Vec::new());
        Self { arm: site.arm, blocks, zeros, sums, first_line: site.line, stacks: HashSet::default() }
    }

    fn goes_on(&self, site: Site<'a>, life: &Lifetime, last: &Lifetime) -> bool {
        if self.arm != site.arm || self.arm == LOOP {
            return self.arm == site.arm;
        }
        // A vector that grows is allocated again.
        let grows = last.block.stack == life.block.stack && last.to < life.from && last.block.size < life.block.size;
        let is_again = site.is_once && self.stacks.contains(&life.block.stack) && !grows;
        site.line >= self.first_line && !is_again
    }

    fn add(&mut self, site: Site<'a>, life: &Lifetime) {
        self.blocks.push(life.seq);
        self.stacks.insert(life.block.stack);
        if site.is_zero_fill {
            self.zeros.push(life.block.size);
        } else if site.is_sum {
            self.sums.push(life.block.size);
        }
    }
}

/// The steps of a pass with these blocks, in order.
pub(super) fn steps<'a>(lives: &[&Lifetime], sites: &mut Sites<'a>) -> Vec<Step<'a>> {
    let (mut steps, mut last): (Vec<Step<'a>>, Option<&Lifetime>) = (Vec::new(), None);
    for life in lives {
        let Some(site) = sites.at(life.block.stack) else { continue };
        let open = steps.last().zip(last).is_some_and(|(step, last)| step.goes_on(site, life, last));
        if !open {
            steps.push(Step::new(site));
        }
        if let Some(step) = steps.last_mut() {
            step.add(site, life);
        }
        last = Some(life);
    }
    steps
}
