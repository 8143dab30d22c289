//! Copies of a model: before the first backward pass, one function makes one block of each variable's size. Frozen
//! references and averaged weights begin this way.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::Attribution;
use super::gradients::is_variable;
use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::model_functions::{Function, Functions, first_passes};
use crate::hashed::{HashMap, HashSet};

pub(super) fn copies_of_models(data: &Attribution<'_>, lives: &[HintedLifetime]) -> HashSet<NonZeroU64> {
    let (first, mut functions) = (first_passes(lives), Functions::of(data));
    let mut made: HashMap<Function<'_>, Vec<&HintedLifetime>> = HashMap::default();
    let moves = |life: &&HintedLifetime| life.of_stack.moves && !life.of_stack.is_structure && life.from > 0;
    for life in lives.iter().filter(|life| life.hint == Hint::Forward).filter(moves) {
        let is_early = first.get(&life.thread).is_some_and(|pass| life.is_live_at(*pass));
        if let Some(function) = functions.get(life.stack).filter(|_| is_early) {
            made.entry(function).or_default().push(life);
        }
    }
    let is_copy = |made: &&Vec<&HintedLifetime>| {
        let at = made.first().map_or(0, |first| first.from);
        let variables = sizes(lives.iter().filter(|life| is_variable(life) && life.is_live_at(at)));
        made.len() > 1 && sizes(made.iter().copied()) == variables
    };
    made.values().filter(is_copy).flatten().map(|life| life.seq).collect()
}

fn sizes<'a>(lives: impl Iterator<Item = &'a HintedLifetime>) -> BTreeMap<u64, usize> {
    let mut sizes = BTreeMap::new();
    lives.for_each(|life| *sizes.entry(life.size).or_default() += 1);
    sizes
}
