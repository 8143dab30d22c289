//! Caches that grow by joining: each is the one before and a constant more.

use std::collections::{HashMap, HashSet};

use super::hint::Hint;
use super::lives::Life;
use crate::snapshot::StackId;

/// The blocks of caches that grow: allocated by `cat` from one place, three sizes or more that differ by as much each
/// time, each live until the next was there.
pub(super) fn growing(lives: &[Life], is_wanted: impl Fn(&Life) -> bool) -> HashSet<u64> {
    let mut places: HashMap<StackId, Vec<&Life>> = HashMap::new();
    for life in lives.iter().filter(|life| life.hint == Hint::Join && life.from > 0 && is_wanted(life)) {
        places.entry(life.stack).or_default().push(life);
    }
    places.values().flat_map(|place| runs(place)).flatten().collect()
}

/// The parts of a place's blocks whose sizes grow evenly.
fn runs(place: &[&Life]) -> Vec<Vec<u64>> {
    // Blocks of one size that follow each other, as the layers of a model have them.
    let steps: Vec<&[&Life]> = place.chunk_by(|a, b| a.size == b.size).collect();
    let mut runs: Vec<Vec<&[&Life]>> = Vec::new();
    for step in steps {
        match runs.last_mut() {
            Some(run) if continues(run, step) => run.push(step),
            _ => runs.push(vec![step]),
        }
    }
    let is_long = |run: &Vec<&[&Life]>| run.len() >= 3;
    runs.into_iter().filter(is_long).map(|run| run.concat().iter().map(|life| life.seq).collect()).collect()
}

fn continues(run: &[&[&Life]], step: &[&Life]) -> bool {
    let size = |step: &[&Life]| step.first().map_or(0, |life| life.size);
    let Some(last) = run.last() else { return true };
    let grows = size(step) > size(last);
    let evenly = match run {
        [.., before, last] => size(last).wrapping_sub(size(before)) == size(step).wrapping_sub(size(last)),
        _ => true,
    };
    // As many, and each was there until its successor was.
    let lasted = last.len() == step.len() && last.iter().zip(step).all(|(old, new)| old.to > new.from);
    grows && evenly && lasted
}
