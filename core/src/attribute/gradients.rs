//! Identifies gradients by counting: no stack tells a gradient from other results of a backward pass, so the results of each
//! size are counted against the variables of that size.
//!
//! A backward pass leaves one gradient for each variable that the loss depends on, of the variable's size, and gradients of
//! operands that are not variables. If it leaves as many blocks of a size as there are variables of that size, all of them
//! are gradients of variables. If the loss does not depend on all variables, this holds only for sizes that no other operand
//! has.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::hashed::{HashMap, HashSet};
use super::hint::Hint;
use super::lifetimes::{Lifetime, RecordPosition};
use super::passes::{Pass, Passes, pass_at};
use crate::snapshot::Category;

#[derive(Debug, Default)]
pub(super) struct GradientCounts {
    pub(super) gradients: HashSet<NonZeroU64>,
    /// Results of a pass whose size no variable has.
    pub(super) details: HashSet<NonZeroU64>,
    pub(super) parameters: HashSet<NonZeroU64>,
}

/// `are_all_known`: nothing was allocated before the recording, and no record was lost.
pub(super) fn count(lives: &[Lifetime], backward: &Passes, are_all_known: bool) -> GradientCounts {
    // Keyed by the position where each pass begins.
    let mut passes: BTreeMap<RecordPosition, Vec<&Lifetime>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward) {
        if let Some(pass) = pass_at(backward, life).filter(|pass| outlives(life, pass) && !pass.has_gradients) {
            passes.entry(pass.from).or_default().push(life);
        }
    }
    let begins: Vec<RecordPosition> = passes.keys().copied().collect();
    let (mut counted, mut live) = (GradientCounts::default(), Live::of(lives, &begins));
    for (from, left) in passes {
        let (variables, others): (Vec<&Lifetime>, Vec<&Lifetime>) = live.at(from).partition(|life| is_variable(life));
        let (left, on_the_way): (Vec<&Lifetime>, Vec<&Lifetime>) =
            left.into_iter().partition(|life| life.of_stack.is_gradient);
        // If gradients retain their graph, gradients of intermediate results are left as well.
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

/// Sweep over the log: which blocks are live at increasing positions.
struct Live<'a> {
    /// Blocks not swept yet, in the order of the log.
    coming: std::iter::Peekable<std::vec::IntoIter<&'a Lifetime>>,
    live: BTreeMap<(RecordPosition, NonZeroU64), &'a Lifetime>,
}

impl<'a> Live<'a> {
    /// Sweeps the blocks that are live at some of these positions, which are sorted.
    fn of(lives: &'a [Lifetime], positions: &[RecordPosition]) -> Self {
        let mut next = 0;
        let is_live = |life: &&Lifetime| {
            // Lives begin nearly always in order.
            let is_next = positions.get(next).is_none_or(|position| life.from <= *position)
                && next.checked_sub(1).is_none_or(|before| positions[before] < life.from);
            if !is_next {
                next = positions.partition_point(|position| *position < life.from);
            }
            life.hint != Hint::Backward && positions.get(next).is_some_and(|position| life.to > *position)
        };
        let mut coming: Vec<&Lifetime> = lives.iter().filter(is_live).collect();
        coming.sort_unstable_by_key(|life| life.from);
        Self { coming: coming.into_iter().peekable(), live: BTreeMap::new() }
    }

    /// The blocks live at a position and the next one. Positions must not decrease from call to call.
    fn at(&mut self, position: RecordPosition) -> impl Iterator<Item = &'a Lifetime> {
        while let Some(life) = self.coming.next_if(|life| life.from <= position) {
            // Keyed by the end of the lifetime.
            if life.to >= position + 2 {
                self.live.insert((life.to, life.seq), life);
            }
        }
        self.live = self.live.split_off(&(position + 2, NonZeroU64::MIN));
        self.live.values().copied()
    }
}

type Sizes<'a> = HashMap<u64, Vec<&'a Lifetime>>;

/// The blocks of each size when a pass ends.
struct Count<'a> {
    /// Results of the pass that may be gradients.
    left: Sizes<'a>,
    variables: Sizes<'a>,
    /// Operands that are not variables; they have gradients as well.
    others: Sizes<'a>,
}

impl Count<'_> {
    fn left(&self, size: u64) -> usize {
        self.left.get(&size).map_or(0, Vec::len)
    }

    fn variables(&self, size: u64) -> &[&Lifetime] {
        self.variables.get(&size).map_or(&[], Vec::as_slice)
    }

    /// Number of variables of this size that certainly belong to a model.
    fn sure(&self, size: u64) -> usize {
        self.variables(size).iter().filter(|life| life.hint != Hint::Variable).count()
    }
}

/// Data, or weights that are not trained. Not an intermediate result, whose gradient does not outlive the pass.
fn may_be_operand(life: &Lifetime) -> bool {
    matches!(life.hint, Hint::Input | Hint::Constant | Hint::Nothing | Hint::Rule(Category::Parameter))
}

/// Was the block still live when its thread did other work?
pub(super) fn outlives(life: &Lifetime, pass: &Pass) -> bool {
    pass.next.is_some_and(|next| life.to > next)
}

/// A model's variable, or perhaps an optimizer's, but not one known to be an optimizer's.
fn is_variable(life: &Lifetime) -> bool {
    life.of_stack.is_variable && matches!(life.hint, Hint::Variable | Hint::Rule(Category::Parameter))
}

fn sizes<'a>(lives: impl Iterator<Item = &'a Lifetime>) -> Sizes<'a> {
    let mut sizes = Sizes::default();
    lives.for_each(|life| sizes.entry(life.size).or_default().push(life));
    sizes
}

impl GradientCounts {
    fn pass(&mut self, count: &Count<'_>, are_all_known: bool) {
        let all = |holds: &dyn Fn(u64) -> bool| count.variables.keys().all(|size| holds(*size));
        // An optimizer's variables have no gradients: if every variable has one, all of them are parameters.
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
