//! Copies of a model: before the first backward pass, one function makes one block of each variable's size. Frozen
//! references and averaged weights begin this way.

use std::num::NonZeroU64;

use super::Attribution;
use super::gradients::is_variable;
use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::model_functions::{first_passes, functions};
use crate::hashed::{HashMap, HashSet, by_key, summed};

pub(super) fn copies_of_models(data: &Attribution<'_>, lives: &[HintedLifetime]) -> HashSet<NonZeroU64> {
    let (first, mut functions) = (first_passes(lives), functions(data));
    let moves = |life: &&HintedLifetime| life.of_stack.moves && !life.of_stack.is_structure && life.from > 0;
    let is_early = |life: &&HintedLifetime| first.get(&life.thread).is_some_and(|pass| life.is_live_at(*pass));
    let copies = lives.iter().filter(|life| life.hint == Hint::Forward).filter(moves).filter(is_early);
    let made = by_key(copies.filter_map(|life| Some((functions.get(life.stack)?, life))));
    let is_copy = |made: &&Vec<&HintedLifetime>| {
        let at = made.first().map_or(0, |first| first.from);
        let variables = sizes(lives.iter().filter(|life| is_variable(life) && life.is_live_at(at)));
        made.len() > 1 && sizes(made.iter().copied()) == variables
    };
    made.values().filter(is_copy).flatten().map(|life| life.seq).collect()
}

fn sizes<'a>(lives: impl Iterator<Item = &'a HintedLifetime>) -> HashMap<u64, usize> {
    summed(lives.map(|life| (life.size, 1)))
}
