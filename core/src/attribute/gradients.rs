//! Which blocks of a backward pass are gradients: by counting them against the variables of their size.
//!
//! A backward pass leaves one gradient for each variable that the loss depends on, as large as the variable, and besides
//! those of operands that are no variables. Where it leaves as many of a size as there are variables of that size, each is
//! the gradient of one of them; if the loss does not depend on all variables, only where nothing else of that size is there.

use std::num::NonZeroU64;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::hint::Hint;
use super::lifetimes::Lifetime;
use super::passes::{Pass, Passes, pass_at};
use crate::snapshot::Category;

/// What counting tells.
#[derive(Debug, Default)]
pub(super) struct GradientCounts {
    pub(super) gradients: HashSet<NonZeroU64>,
    /// Left by a pass, and as large as no variable.
    pub(super) details: HashSet<NonZeroU64>,
    /// Variables that have gradients.
    pub(super) parameters: HashSet<NonZeroU64>,
}

/// `are_all_known`: nothing was allocated before the recording, and no record was lost.
pub(super) fn count(lives: &[Lifetime], backward: &Passes, are_all_known: bool) -> GradientCounts {
    // By where each pass begins.
    let mut passes: BTreeMap<usize, Vec<&Lifetime>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward) {
        if let Some(pass) = pass_at(backward, life).filter(|pass| outlives(life, pass) && !pass.has_gradients) {
            passes.entry(pass.from).or_default().push(life);
        }
    }
    let (mut counted, mut live) = (GradientCounts::default(), Live::of(lives));
    for (from, left) in passes {
        let (variables, others): (Vec<&Lifetime>, Vec<&Lifetime>) = live.at(from).partition(|life| is_variable(life));
        let (left, on_the_way): (Vec<&Lifetime>, Vec<&Lifetime>) = left.into_iter().partition(|life| life.may_be_gradient);
        // Where gradients hold on to what they were made of, those of a model's own results are left as well.
        let may_have_one = |life: &&Lifetime| !on_the_way.is_empty() || may_be_operand(life);
        let count = Count {
            left: sizes(left.into_iter()),
            variables: sizes(variables.into_iter()),
            others: sizes(others.into_iter().filter(may_have_one)),
        };
        counted.pass(&count, are_all_known);
    }
    counted
}

/// What is live at one position after the other.
struct Live<'a> {
    /// What was not looked at yet, in the order of the log.
    coming: std::iter::Peekable<std::vec::IntoIter<&'a Lifetime>>,
    live: BTreeMap<(usize, NonZeroU64), &'a Lifetime>,
}

impl<'a> Live<'a> {
    fn of(lives: &'a [Lifetime]) -> Self {
        let mut coming: Vec<&Lifetime> = lives.iter().filter(|life| life.hint != Hint::Backward).collect();
        coming.sort_unstable_by_key(|life| life.from);
        Self { coming: coming.into_iter().peekable(), live: BTreeMap::new() }
    }

    /// What is there at a position, which comes after those that were asked for before, and at the next.
    fn at(&mut self, position: usize) -> impl Iterator<Item = &'a Lifetime> {
        while let Some(life) = self.coming.next_if(|life| life.from <= position) {
            // In the order in which they go.
            self.live.insert((life.to, life.seq), life);
        }
        self.live = self.live.split_off(&(position + 2, NonZeroU64::MIN));
        self.live.values().copied()
    }
}

/// What there is of each size.
type Sizes<'a> = HashMap<u64, Vec<&'a Lifetime>>;

/// What is there of each size when a pass is over.
struct Count<'a> {
    /// What it leaves that may be gradients.
    left: Sizes<'a>,
    variables: Sizes<'a>,
    /// Operands that are no variables have gradients as well.
    others: Sizes<'a>,
}

impl Count<'_> {
    fn left(&self, size: u64) -> usize {
        self.left.get(&size).map_or(0, Vec::len)
    }

    fn variables(&self, size: u64) -> &[&Lifetime] {
        self.variables.get(&size).map_or(&[], Vec::as_slice)
    }

    /// Variables of this size that are certain to be a model's.
    fn sure(&self, size: u64) -> usize {
        self.variables(size).iter().filter(|life| life.hint != Hint::Variable).count()
    }
}

/// Data, weights that are not trained: no part of what a model works out, whose gradients do not outlive the pass.
fn may_be_operand(life: &Lifetime) -> bool {
    matches!(life.hint, Hint::Input | Hint::Constant | Hint::Nothing | Hint::Rule(Category::Parameter))
}

/// Was it there when the thread did something else?
pub(super) fn outlives(life: &Lifetime, pass: &Pass) -> bool {
    pass.next.is_some_and(|next| life.to > next)
}

/// A model's, or perhaps an optimizer's, but none that is known for an optimizer's.
fn is_variable(life: &Lifetime) -> bool {
    life.is_variable && matches!(life.hint, Hint::Variable | Hint::Rule(Category::Parameter))
}

fn sizes<'a>(lives: impl Iterator<Item = &'a Lifetime>) -> Sizes<'a> {
    let mut sizes = Sizes::new();
    lives.for_each(|life| sizes.entry(life.size).or_default().push(life));
    sizes
}

impl GradientCounts {
    fn pass(&mut self, count: &Count<'_>, are_all_known: bool) {
        let all = |holds: &dyn Fn(u64) -> bool| count.variables.keys().all(|size| holds(*size));
        // A variable that may be an optimizer's has no gradient: where all have one, all are parameters.
        let all_are_even = all(&|size| count.left(size) == count.variables(size).len());
        let all_are_reached = all(&|size| count.left(size) >= count.sure(size));
        for (size, left) in &count.left {
            let (size, seqs) = (*size, left.iter().map(|life| life.seq));
            let is_clear = all_are_reached || !count.others.contains_key(&size);
            match count.variables(size) {
                [] if are_all_known && !count.variables.is_empty() => self.details.extend(seqs),
                [] => {}
                variables if all_are_even || is_clear && left.len() == count.sure(size) => {
                    self.gradients.extend(seqs);
                    let has_one = |life: &&&Lifetime| all_are_even || life.hint != Hint::Variable;
                    self.parameters.extend(variables.iter().filter(has_one).map(|life| life.seq));
                }
                _ => {}
            }
        }
    }
}
