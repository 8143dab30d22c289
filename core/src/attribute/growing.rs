//! Detects KV caches that grow by concatenation: each block is the previous one plus a constant. A *run* is a series
//! of such blocks of one site.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::reordered::{Reordered, SOON};
use crate::hashed::{HashMap, HashSet, by_key};
use crate::snapshot::{LogPosition, NEVER, StackId, ThreadId};

/// The fewest blocks of a run that counts as a cache.
const LEAST: usize = 3;
/// The most allocations before or after a block that are searched. Keys and values are read soon after they are
/// joined.
const NEAR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Growing {
    /// Blocks of the caches: three or more blocks allocated by `cat`, each larger than the last by the same amount and
    /// allocated while the last was live. Results computed after these blocks must grow, too, as those do that read
    /// keys and values. Collected results also form runs, but nothing reads all of them each time.
    pub(super) caches: HashSet<NonZeroU64>,
    /// Blocks that may be the initial contents of such a cache.
    pub(super) prefixes: HashSet<NonZeroU64>,
}

pub(super) fn growing(lives: &[HintedLifetime], is_wanted: impl Fn(&HintedLifetime) -> bool) -> Growing {
    let Reordered { joined, copies } = Reordered::of(lives, is_wanted);
    let places = by_key(joined.iter().map(|life| (life.stack, life)));
    let runs: Vec<Vec<&HintedLifetime>> =
        places.values().flat_map(|place| runs(place)).filter(|run| run.len() > 1).collect();
    let and_copy = |life: &HintedLifetime| [life.seq].into_iter().chain(copies.get(&life.seq).copied());
    let collected: HashSet<NonZeroU64> = runs.iter().flatten().flat_map(|life| and_copy(life)).collect();
    let mut growing = Growing::default();
    if runs.iter().all(|run| run.len() < LEAST) {
        return growing;
    }
    let work = work(lives, &collected);
    for run in runs.iter().filter(|run| run.len() >= LEAST && is_read(run, &work)) {
        growing.prefixes.extend(prefixes(run, &work));
        growing.caches.extend(run.iter().flat_map(|life| and_copy(life)));
    }
    growing
}

/// Blocks that were live when a run's first block was allocated, and smaller by as much as the run grows each time.
fn prefixes(run: &[&HintedLifetime], work: &HashMap<ThreadId, Vec<&HintedLifetime>>) -> Vec<NonZeroU64> {
    let [first, second, ..] = run else { return Vec::new() };
    let size = first.size.saturating_sub(second.size - first.size);
    let all = work.get(&first.thread).map_or(&[][..], Vec::as_slice);
    let before = all.get(..all.partition_point(|life| life.from <= first.from)).unwrap_or_default();
    let is_one = |life: &&&HintedLifetime| life.size == size && life.is_live_at(first.from);
    before.iter().rev().take(NEAR).filter(is_one).map(|life| life.seq).collect()
}

/// Splits the blocks of one site into runs: several, if caches grow side by side. A block can continue a run only
/// while the run's last block is live. If it fits several runs, it continues the one whose last block will be freed
/// first, because requests and layers take turns.
fn runs<'a>(place: &[&'a HintedLifetime]) -> Vec<Vec<&'a HintedLifetime>> {
    let mut open = OpenRuns::of(place.len());
    let mut runs: Vec<Vec<&HintedLifetime>> = Vec::new();
    for life in place {
        let run = open.continued_by(life, &runs).unwrap_or(runs.len());
        match runs.get_mut(run) {
            Some(known) => {
                open.forget(run, known);
                known.push(life);
            }
            None => runs.push(vec![life]),
        }
        open.remember(run, &runs[run]);
    }
    runs
}

/// Finds the run that a block continues without a look at each run, because there may be as many runs as blocks. Runs
/// are known by their index.
struct OpenRuns {
    /// Runs whose last block is freed later, by the position of this free.
    soon: BTreeMap<LogPosition, usize>,
    /// Runs whose last block is never freed, by the size of their next block.
    endless: HashMap<u64, BTreeSet<usize>>,
    /// Runs of only one block, which is never freed. Any larger block continues them.
    single: FirstBelow,
}

impl OpenRuns {
    fn of(most: usize) -> Self {
        Self { soon: BTreeMap::new(), endless: HashMap::default(), single: FirstBelow::of(most) }
    }

    fn continued_by(&self, life: &HintedLifetime, runs: &[Vec<&HintedLifetime>]) -> Option<usize> {
        let ends = life.from.saturating_add(1)..=life.from.saturating_add(SOON);
        let soon = self.soon.range(ends).map(|(_, run)| *run).filter(|run| continues(&runs[*run], life));
        let (long, single): (Vec<usize>, Vec<usize>) = soon.partition(|run| runs[*run].len() > 1);
        let endless = || self.endless.get(&life.size).and_then(|runs| runs.first()).copied();
        long.first()
            .copied()
            .or_else(endless)
            .or(single.first().copied())
            .or_else(|| self.single.first_below(life.size))
    }

    fn remember(&mut self, at: usize, run: &[&HintedLifetime]) {
        match run {
            [.., last] if last.to != NEVER => _ = self.soon.insert(last.to, at),
            [.., before, last] => _ = self.endless.entry(next_size(before, last)).or_default().insert(at),
            [only] => self.single.set(at, only.size),
            [] => {}
        }
    }

    fn forget(&mut self, at: usize, run: &[&HintedLifetime]) {
        match run {
            [.., last] if last.to != NEVER => _ = self.soon.remove(&last.to),
            [.., before, last] => {
                self.endless.entry(next_size(before, last)).and_modify(|runs| _ = runs.remove(&at));
            }
            [_] => self.single.set(at, u64::MAX),
            [] => {}
        }
    }
}

/// Size of a run's next block: a run grows by the same amount each time.
fn next_size(before: &HintedLifetime, last: &HintedLifetime) -> u64 {
    last.size.saturating_add(last.size - before.size)
}

fn continues(run: &[&HintedLifetime], life: &HintedLifetime) -> bool {
    match run {
        [.., before, last] => next_size(before, last) == life.size,
        [only] => only.size < life.size,
        [] => false,
    }
}

/// Finds the first index of a run whose size is below a limit. Each node of the binary tree has the minimum of its
/// leaves.
struct FirstBelow {
    leaves: usize,
    minima: Vec<u64>,
}

impl FirstBelow {
    fn of(most: usize) -> Self {
        let leaves = most.next_power_of_two();
        Self { leaves, minima: vec![u64::MAX; 2 * leaves] }
    }

    fn set(&mut self, at: usize, size: u64) {
        let mut node = self.leaves + at;
        self.minima[node] = size;
        while node > 1 {
            node /= 2;
            self.minima[node] = self.minima[2 * node].min(self.minima[2 * node + 1]);
        }
    }

    fn first_below(&self, limit: u64) -> Option<usize> {
        let mut node = 1;
        if self.minima[node] >= limit {
            return None;
        }
        while node < self.leaves {
            node = if self.minima[2 * node] < limit { 2 * node } else { 2 * node + 1 };
        }
        Some(node - self.leaves)
    }
}

/// The allocations of operators, except `collected` ones (those of runs), by thread, in order.
fn work<'a>(
    lives: &'a [HintedLifetime],
    collected: &HashSet<NonZeroU64>,
) -> HashMap<ThreadId, Vec<&'a HintedLifetime>> {
    let is_one =
        |life: &&HintedLifetime| matches!(life.hint, Hint::Forward | Hint::Join) && !collected.contains(&life.seq);
    by_key(lives.iter().filter(is_one).map(|life| (life.thread, life)))
}

/// Whether some operator computes a result after each block of the run, and these results grow, too.
fn is_read(run: &[&HintedLifetime], work: &HashMap<ThreadId, Vec<&HintedLifetime>>) -> bool {
    let after = |life: &&HintedLifetime, until: LogPosition| -> HashMap<StackId, u64> {
        let work = work.get(&life.thread).map_or(&[][..], Vec::as_slice);
        let work = work.get(work.partition_point(|other| other.from < life.from)..).unwrap_or_default();
        let mut sizes = HashMap::default();
        for other in work.iter().take(NEAR).take_while(|other| other.from < until) {
            // Only the first block of each site counts. Later blocks belong to the next layer.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lifetimes::hinted;
    use super::*;
    use crate::attribute::Attribution;
    use crate::snapshot::Lifetimes;
    use crate::snapshot::testing::{LINE_7, Story};

    /// The same by definition: looks at all runs for each block.
    fn by_definition<'a>(place: &[&'a HintedLifetime]) -> Vec<Vec<&'a HintedLifetime>> {
        let mut runs: Vec<Vec<&HintedLifetime>> = Vec::new();
        for life in place {
            let is_open = |run: &&mut Vec<&HintedLifetime>| {
                let last = run[run.len() - 1];
                last.to > life.from && (last.to == NEVER || last.to - life.from <= SOON)
            };
            let fits = runs.iter_mut().filter(is_open).filter(|run| continues(run, life));
            match fits.min_by_key(|run| (run.len() == 1, run.last().map(|last| last.to))) {
                Some(run) => run.push(life),
                None => runs.push(vec![life]),
            }
        }
        runs
    }

    proptest! {
        #![proptest_config(crate::random::programs(1000))]

        #[test]
        fn each_block_continues_the_run_that_a_look_at_all_of_them_finds(
            ops in prop::collection::vec((0..3u32, 1..7u64, 0..12usize), 0..80),
        ) {
            let (mut story, mut live) = (Story::cpu(), Vec::new());
            for (time_ns, &(kind, size, nth)) in (1u64..).zip(&ops) {
                story.at(time_ns);
                if kind > 0 {
                    story.alloc(time_ns, 100 * size).on(LINE_7);
                    live.push(time_ns);
                } else if nth < live.len() {
                    story.free(live.remove(nth));
                }
            }
            let data = story.build();
            let lives = hinted(&Attribution::new(&data), &Lifetimes::of(&data.devices[0]));
            let place: Vec<&HintedLifetime> = lives.iter().collect();
            let numbers = |runs: Vec<Vec<&HintedLifetime>>| -> Vec<Vec<NonZeroU64>> {
                runs.into_iter().map(|run| run.into_iter().map(|life| life.seq).collect()).collect()
            };
            prop_assert_eq!(numbers(runs(&place)), numbers(by_definition(&place)));
        }
    }
}
