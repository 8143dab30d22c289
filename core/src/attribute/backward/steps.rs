//! The steps of a backward pass. A *step* is the group of blocks that one run of an arm allocated.
//!
//! A step ends when the pass reaches another arm, or returns to a line before the first line of the step. It also ends
//! when the pass allocates again with a stack of the step, if the step has already begun a gradient or added to one.
//! Arms with a loop, over operands or groups of channels, end only when another arm begins.

use std::num::NonZeroU64;

use super::sites::{Site, Sites};
use crate::hashed::{HashMap, HashSet};
use crate::snapshot::{Lifetime, LogPosition, StackId};

const LOOPS: [&str; 3] = ["cat", "upsample_nearest1d", "upsample_nearest2d"];

/// A gradient after another part was added to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) size: u64,
    pub(super) freed: LogPosition,
}

/// The recorded blocks of one run of an arm.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) arm: &'a str,
    pub(super) blocks: Vec<NonZeroU64>,
    /// Sizes of new gradients, filled with zeros.
    pub(super) zeros: Vec<u64>,
    pub(super) sums: Vec<Sum>,
    /// The first and the last allocation.
    pub(super) from: LogPosition,
    pub(super) to: LogPosition,
    first_line: u32,
    stacks: HashSet<StackId>,
}

impl<'a> Step<'a> {
    fn new(site: Site<'a>, life: &Lifetime) -> Self {
        let (blocks, zeros, sums) = (Vec::new(), Vec::new(), Vec::new());
        let (arm, first_line, stacks) = (site.arm, site.line, HashSet::default());
        Self { arm, blocks, zeros, sums, from: life.from, to: life.from, first_line, stacks }
    }

    fn goes_on(&self, site: Site<'a>, life: &Lifetime, last: &Lifetime) -> bool {
        if self.arm != site.arm || LOOPS.contains(&self.arm) {
            return self.arm == site.arm;
        }
        // A vector that grows is reallocated.
        let grows = last.block.stack == life.block.stack && last.to < life.from && last.block.size < life.block.size;
        // Before its first gradient, an arm may repeat itself: `broadcast` drops dimensions one by one.
        let has_gradient = !self.sums.is_empty() || !self.zeros.is_empty();
        let is_again = has_gradient && site.is_once && self.stacks.contains(&life.block.stack) && !grows;
        site.line >= self.first_line && !is_again
    }

    fn add(&mut self, site: Site<'a>, life: &Lifetime) {
        self.blocks.push(life.seq);
        self.to = life.from;
        self.stacks.insert(life.block.stack);
        if site.is_zero_fill {
            self.zeros.push(life.block.size);
        } else if site.is_sum {
            self.sums.push(Sum { size: life.block.size, freed: life.to });
        }
    }

    /// Sizes of the sums that add, or may add, to a gradient that another step began. Of several sums of a size, the
    /// log does not tell which had the new zeros.
    pub(super) fn later_sums(&self) -> HashSet<u64> {
        let mut more: HashMap<u64, i64> = HashMap::default();
        self.sums.iter().for_each(|sum| *more.entry(sum.size).or_default() += 1);
        self.zeros.iter().for_each(|size| *more.entry(*size).or_default() -= 1);
        more.into_iter().filter(|(_, more)| *more > 0).map(|(size, _)| size).collect()
    }
}

/// The steps of a pass with these blocks, in order.
pub(super) fn steps<'a>(lives: &[&Lifetime], sites: &mut Sites<'a>) -> Vec<Step<'a>> {
    let (mut steps, mut last): (Vec<Step<'a>>, Option<&Lifetime>) = (Vec::new(), None);
    for life in lives {
        let Some(site) = sites.get(life.block.stack) else { continue };
        let open = steps.last().zip(last).is_some_and(|(step, last)| step.goes_on(site, life, last));
        if !open {
            steps.push(Step::new(site, life));
        }
        if let Some(step) = steps.last_mut() {
            step.add(site, life);
        }
        last = Some(life);
    }
    steps
}
