//! Detects KV caches that grow by concatenation: each block is the previous one plus a constant.

use std::num::NonZeroU64;

use super::hashed::{HashMap, HashSet};
use super::hint::Hint;
use super::lifetimes::{Lifetime, NEVER, RecordPosition};
use crate::snapshot::{StackId, ThreadId};

/// Blocks in a run that counts as a cache.
const LEAST: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Growing {
    /// Blocks of the caches: three or more allocated by `cat`, each larger than the last by the same amount and allocated while
    /// the last was live. Results computed after them must grow with them, as those that read keys and values do; collected
    /// results grow too, but nothing reads all of them each time.
    pub(super) caches: HashSet<NonZeroU64>,
    /// Blocks that may be the initial contents of such a cache.
    pub(super) prefixes: HashSet<NonZeroU64>,
}

pub(super) fn growing(lives: &[Lifetime], is_wanted: impl Fn(&Lifetime) -> bool) -> Growing {
    let mut places: HashMap<StackId, Vec<&Lifetime>> = HashMap::default();
    for life in lives.iter().filter(|life| life.hint == Hint::Join && life.from > 0 && is_wanted(life)) {
        places.entry(life.stack).or_default().push(life);
    }
    let runs: Vec<Vec<&Lifetime>> = places.values().flat_map(|place| runs(place)).filter(|run| run.len() > 1).collect();
    let collected: HashSet<NonZeroU64> = runs.iter().flatten().map(|life| life.seq).collect();
    let mut growing = Growing::default();
    if runs.iter().all(|run| run.len() < LEAST) {
        return growing;
    }
    let work = work(lives, &collected);
    for run in runs.iter().filter(|run| run.len() >= LEAST && is_read(run, &work)) {
        growing.prefixes.extend(prefixes(run, &work));
        growing.caches.extend(run.iter().map(|life| life.seq));
    }
    growing
}

/// Blocks as large as the first of a run minus one step, live when it was allocated.
fn prefixes(run: &[&Lifetime], work: &HashMap<ThreadId, Vec<&Lifetime>>) -> Vec<NonZeroU64> {
    let [first, second, ..] = run else { return Vec::new() };
    /// Number of later allocations that are searched.
    const NEAR: usize = 512;
    let size = first.size.saturating_sub(second.size - first.size);
    let all = work.get(&first.thread).map_or(&[][..], Vec::as_slice);
    let before = all.get(..all.partition_point(|life| life.from <= first.from)).unwrap_or_default();
    let is_one = |life: &&&Lifetime| life.size == size && life.is_live_at(first.from);
    before.iter().rev().take(NEAR).filter(is_one).map(|life| life.seq).collect()
}

/// Splits the blocks of one site into runs, for caches that grow side by side.
fn runs<'a>(place: &[&'a Lifetime]) -> Vec<Vec<&'a Lifetime>> {
    let (mut runs, mut over): (Vec<Vec<&Lifetime>>, _) = (Vec::new(), Vec::new());
    for life in place {
        // A run whose last block is freed cannot continue.
        over.extend(runs.extract_if(.., |run| run.last().is_some_and(|last| last.to < life.from)));
        // Of several runs, the one whose last block is freed first: requests and layers take turns.
        let continued = runs.iter_mut().filter(|run| continues(run, life));
        match continued.min_by_key(|run| (run.len() == 1, run.last().map(|last| last.to))) {
            Some(run) => run.push(life),
            None => runs.push(vec![life]),
        }
    }
    runs.extend(over);
    runs
}

fn continues(run: &[&Lifetime], life: &Lifetime) -> bool {
    /// Maximum number of records until the last block is freed.
    const SOON: RecordPosition = 16;
    let Some(last) = run.last() else { return false };
    let by = life.size.saturating_sub(last.size);
    let evenly = match run {
        [.., before, last] => last.size - before.size == by,
        _ => by > 0,
    };
    evenly && last.to > life.from && (last.to == NEVER || last.to - life.from <= SOON)
}

/// Other allocations of each thread's operators, in order.
fn work<'a>(lives: &'a [Lifetime], collected: &HashSet<NonZeroU64>) -> HashMap<ThreadId, Vec<&'a Lifetime>> {
    let mut work: HashMap<ThreadId, Vec<&Lifetime>> = HashMap::default();
    let is_one = |life: &&Lifetime| matches!(life.hint, Hint::Forward | Hint::Join) && !collected.contains(&life.seq);
    lives.iter().filter(is_one).for_each(|life| work.entry(life.thread).or_default().push(life));
    work
}

/// Does a result computed after each block of the run grow with the run?
fn is_read(run: &[&Lifetime], work: &HashMap<ThreadId, Vec<&Lifetime>>) -> bool {
    let after = |life: &&Lifetime, until: RecordPosition| -> HashMap<StackId, u64> {
        let work = work.get(&life.thread).map_or(&[][..], Vec::as_slice);
        let work = work.get(work.partition_point(|other| other.from < life.from)..).unwrap_or_default();
        let mut sizes = HashMap::default();
        for other in work.iter().take_while(|other| other.from < until) {
            // The first of each site; later ones are those of the next layer.
            sizes.entry(other.stack).or_insert(other.size);
        }
        sizes
    };
    let windows: Vec<_> = run
        .windows(2)
        .filter_map(|pair| match pair {
            [life, next] => Some(after(life, next.from)),
            _ => None,
        })
        .collect();
    let Some(first) = windows.first() else { return false };
    let grows = |stack: &StackId| {
        let sizes: Vec<_> = windows.iter().filter_map(|window| window.get(stack)).collect();
        sizes.len() == windows.len() && sizes.windows(2).all(|pair| pair[0] < pair[1])
    };
    windows.len() + 1 >= LEAST && first.keys().any(grows)
}
