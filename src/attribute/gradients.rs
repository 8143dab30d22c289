//! Which blocks of a backward pass are gradients: by counting them against the variables of their size.
//!
//! A backward pass leaves one gradient for each variable that the loss depends on, as large as the variable, and besides
//! those of operands that are no variables. Where a pass leaves as many blocks of a size as there are variables of that
//! size, each is the gradient of one of them, and each of them is a parameter: an optimizer's state has no gradient.

use std::collections::{HashMap, HashSet};

use super::hint::Hint;
use super::lives::Life;
use super::passes::{Pass, Passes, pass_at};
use crate::snapshot::{Category, ThreadId};

/// What counting tells.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) gradients: HashSet<u64>,
    /// Left by a pass, and as large as no variable.
    pub(super) details: HashSet<u64>,
    /// Variables that have gradients.
    pub(super) parameters: HashSet<u64>,
}

/// `are_all_known`: nothing was allocated before the recording, and no record was lost.
pub(super) fn count(lives: &[Life], backward: &Passes, are_all_known: bool) -> Counted {
    let mut left: HashMap<(ThreadId, usize), Vec<&Life>> = HashMap::new();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward) {
        if let Some(pass) = pass_at(backward, life).filter(|pass| outlives(life, pass) && !pass.has_gradients) {
            left.entry((life.thread, pass.from)).or_default().push(life);
        }
    }
    let variables: Vec<&Life> = lives.iter().filter(|life| is_variable(life)).collect();
    let mut counted = Counted::default();
    for ((thread, from), left) in left {
        let pass = backward.get(&thread).and_then(|passes| passes.iter().find(|pass| pass.from == from));
        let Some(pass) = pass else { continue };
        let there = |life: &&&Life| life.is_live_at(pass.from) && life.is_live_at(pass.to);
        counted.pass(&left, &by_size(variables.iter().filter(there).copied()), are_all_known);
    }
    counted
}

/// Was it there when the thread did something else?
pub(super) fn outlives(life: &Life, pass: &Pass) -> bool {
    pass.next.is_some_and(|next| life.to > next)
}

/// A model's, or perhaps an optimizer's, but none that is known for an optimizer's.
fn is_variable(life: &Life) -> bool {
    life.is_variable && matches!(life.hint, Hint::Variable | Hint::Rule(Category::Parameter))
}

fn by_size<'a>(lives: impl Iterator<Item = &'a Life>) -> HashMap<u64, Vec<&'a Life>> {
    let mut sizes: HashMap<u64, Vec<&Life>> = HashMap::new();
    lives.for_each(|life| sizes.entry(life.size).or_default().push(life));
    sizes
}

impl Counted {
    fn pass(&mut self, left: &[&Life], variables: &HashMap<u64, Vec<&Life>>, are_all_known: bool) {
        for (size, left) in by_size(left.iter().copied()) {
            let seqs = left.iter().map(|life| life.seq);
            let are_sure = |variables: &[&Life]| variables.iter().filter(|life| life.hint != Hint::Variable).count();
            match variables.get(&size) {
                Some(variables) if variables.len() == left.len() => {
                    self.gradients.extend(seqs);
                    self.parameters.extend(variables.iter().map(|life| life.seq));
                }
                // The others are an optimizer's.
                Some(variables) if are_sure(variables) == left.len() => self.gradients.extend(seqs),
                None if are_all_known && !variables.is_empty() => self.details.extend(seqs),
                _ => {}
            }
        }
    }
}
