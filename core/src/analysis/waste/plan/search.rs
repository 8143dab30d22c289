//! The search for a plan's changes: greedily takes the change that removes most of the excess over the budget, then
//! drops the changes that are not needed.

use std::num::NonZeroU64;

use super::super::replay::LogReplay;
use super::candidates::Candidate;
use crate::analysis::absence::{Absence, LogChange};
use crate::hashed::{HashMap, HashSet};

/// Indices of the chosen changes; those that move nothing to the host come first. If the budget cannot be reached, all
/// that reduce the excess are chosen.
pub(super) fn choose(log: &LogReplay, candidates: &[Candidate], budget: u64) -> Vec<usize> {
    let totals = Totals::of(log, candidates, i64::try_from(budget).unwrap_or(i64::MAX));
    let mut state = State { totals: totals.clone(), taken: Taken::default() };
    let mut chosen = Vec::new();
    while let Some(best) = state.best(candidates, &chosen) {
        state.take(&candidates[best]);
        chosen.push(best);
    }
    let least = state.totals.excess(&[]);
    let mut costly_first = chosen.clone();
    costly_first.sort_by_key(|at| std::cmp::Reverse((candidates[*at].moved, *at)));
    for at in costly_first {
        let others: Vec<&Candidate> = chosen.iter().filter(|other| **other != at).map(|at| &candidates[*at]).collect();
        if totals.excess(&totals.placed(&changes(&others))) <= least {
            chosen.retain(|other| *other != at);
        }
    }
    chosen.sort_by_key(|at| candidates[*at].moved > 0);
    chosen
}

/// The same changes, but each moves only as many blocks to the host as the same peak needs, and those allocated first.
pub(super) fn with_fewest_blocks(log: &LogReplay, mut chosen: Vec<Candidate>, budget: u64) -> Vec<Candidate> {
    let peak = |chosen: &[Candidate]| log.peak(&changes(&chosen.iter().collect::<Vec<_>>()));
    let reached = peak(&chosen).max(i64::try_from(budget).unwrap_or(i64::MAX));
    for at in (0..chosen.len()).filter(|at| chosen[*at].moved > 0).collect::<Vec<_>>() {
        let whole = chosen[at].clone();
        let blocks: Vec<NonZeroU64> = whole.taken().collect();
        let enough = blocks.partition_point(|last| {
            chosen[at] = whole.up_to(log, *last);
            peak(&chosen) > reached
        });
        chosen[at] = blocks.get(enough).map_or_else(|| whole.clone(), |last| whole.up_to(log, *last));
    }
    chosen
}

/// The lowest peak that is reached with all changes, or with all except those that exclude other changes of a block.
pub(super) fn lowest(log: &LogReplay, candidates: &[Candidate]) -> u64 {
    let (alone, others): (Vec<_>, Vec<_>) = candidates.iter().partition(|candidate| !candidate.blocks.is_empty());
    let with = |chosen: &[&Candidate]| log.peak_with(changes(chosen).into_iter());
    with(&others).min(with(&[alone, others].concat()))
}

/// The combined changes of the total, in the order of the records.
pub(super) fn changes(chosen: &[&Candidate]) -> Vec<LogChange> {
    let mut taken = Taken::default();
    let mut all = Vec::new();
    for candidate in chosen {
        all.extend(taken.change_by(candidate));
        taken.take(candidate);
    }
    all.sort_unstable();
    all
}

/// Blocks that earlier changes affect.
#[derive(Clone, Default)]
struct Taken {
    gone: HashMap<NonZeroU64, Vec<Absence>>,
    /// Blocks of an earlier change that excludes other changes of the same blocks.
    owned: HashSet<NonZeroU64>,
}

impl Taken {
    /// How one more candidate changes the total of live bytes after the earlier changes.
    fn change_by(&self, candidate: &Candidate) -> Vec<LogChange> {
        if candidate.blocks.iter().any(|seq| self.owned.contains(seq)) {
            return Vec::new();
        }
        let gone = |seq: &NonZeroU64| self.gone.get(seq).map_or(&[][..], Vec::as_slice);
        let back = candidate.blocks.iter().flat_map(gone).flat_map(Absence::changes).map(|(at, bytes)| (at, -bytes));
        let own = candidate.absences.iter().filter(|absence| !self.owned.contains(&absence.seq));
        let further = own.flat_map(|absence| without(*absence, gone(&absence.seq))).flat_map(|part| part.changes());
        back.chain(further).chain(candidate.changes.iter().copied()).collect()
    }

    fn take(&mut self, candidate: &Candidate) {
        if candidate.blocks.iter().any(|seq| self.owned.contains(seq)) {
            return;
        }
        self.owned.extend(&candidate.blocks);
        for absence in candidate.absences.iter().filter(|absence| !self.owned.contains(&absence.seq)) {
            let gone = self.gone.entry(absence.seq).or_default();
            let parts = without(*absence, gone);
            gone.extend(parts);
        }
        for seq in &candidate.blocks {
            self.gone.remove(seq);
        }
    }
}

/// The parts of an absence that the others leave uncovered. The others do not overlap.
fn without(absence: Absence, others: &[Absence]) -> Vec<Absence> {
    let mut parts = vec![absence];
    for other in others {
        parts = parts
            .into_iter()
            .flat_map(|part| {
                let before = Absence { until: part.until.min(other.from), ..part };
                let after = Absence { from: part.from.max(other.until), ..part };
                [before, after]
            })
            .filter(|part| part.from < part.until)
            .collect();
    }
    parts
}

/// The highest total of each stretch between two records at which a change has an effect. Stretches that always stay
/// within the budget are left out.
#[derive(Clone)]
struct Totals {
    budget: i64,
    starts: Vec<usize>,
    most: Vec<i64>,
}

impl Totals {
    fn of(log: &LogReplay, candidates: &[Candidate], budget: i64) -> Self {
        let absent = candidates.iter().flat_map(|candidate| &candidate.absences);
        let own = candidates.iter().flat_map(|candidate| &candidate.changes).map(|(at, _)| *at);
        let mut all: Vec<usize> =
            absent.flat_map(|absence| [absence.from, absence.until]).chain(own).chain([0]).collect();
        all.sort_unstable();
        all.dedup();
        let added = candidates.iter().map(|candidate| most_added(&candidate.changes)).sum::<i64>();
        let mut totals = log.totals(&[]).enumerate().peekable();
        let (mut starts, mut most) = (Vec::new(), Vec::new());
        for (number, start) in all.iter().enumerate() {
            let end = all.get(number + 1).copied().unwrap_or(usize::MAX);
            let mut highest = i64::MIN;
            while let Some((_, total)) = totals.next_if(|(at, _)| *at < end) {
                highest = highest.max(total);
            }
            if highest.saturating_add(added) > budget {
                starts.push(*start);
                most.push(highest);
            }
        }
        Self { budget, starts, most }
    }

    /// The changes, each with the index of its stretch instead of its record, sorted by this index.
    fn placed(&self, changes: &[LogChange]) -> Vec<LogChange> {
        let mut placed: Vec<LogChange> =
            changes.iter().map(|(at, bytes)| (self.starts.partition_point(|start| start < at), *bytes)).collect();
        placed.sort_unstable();
        placed
    }

    /// The excess over the budget with these changes, summed over the stretches.
    fn excess(&self, placed: &[LogChange]) -> i128 {
        let (mut change, mut placed) = (0, placed.iter().peekable());
        let above = |(at, most): (usize, &i64)| {
            while let Some((_, bytes)) = placed.next_if(|(from, _)| *from <= at) {
                change += bytes;
            }
            i128::from((most + change - self.budget).max(0))
        };
        self.most.iter().enumerate().map(above).sum()
    }

    fn apply(&mut self, placed: &[LogChange]) {
        let (mut change, mut placed) = (0, placed.iter().peekable());
        for (at, most) in self.most.iter_mut().enumerate() {
            while let Some((_, bytes)) = placed.next_if(|(from, _)| *from <= at) {
                change += bytes;
            }
            *most += change;
        }
    }
}

/// The most bytes by which these changes raise the total at any moment.
fn most_added(changes: &[LogChange]) -> i64 {
    let mut changes = changes.to_vec();
    changes.sort_unstable();
    let sums = changes.iter().scan(0i64, |sum, (_, bytes)| {
        *sum += bytes;
        Some(*sum)
    });
    sums.max().unwrap_or(0).max(0)
}

struct State {
    totals: Totals,
    taken: Taken,
}

impl State {
    fn take(&mut self, candidate: &Candidate) {
        let placed = self.totals.placed(&self.taken.change_by(candidate));
        self.totals.apply(&placed);
        self.taken.take(candidate);
    }

    /// The next change to take. Of the changes that move nothing, it is the one that removes most of the excess. If
    /// there is none, it is the one that removes most excess per byte that it moves.
    fn best(&self, candidates: &[Candidate], chosen: &[usize]) -> Option<usize> {
        let excess = self.totals.excess(&[]);
        if excess == 0 {
            return None;
        }
        let gains = (0..candidates.len()).filter(|at| !chosen.contains(at)).map(|at| {
            let placed = self.totals.placed(&self.taken.change_by(&candidates[at]));
            (excess - self.totals.excess(&placed), at)
        });
        let rate = |(gain, at): (i128, usize)| gain as f64 / candidates[at].moved.max(1) as f64;
        let is_free = |(_, at): (i128, usize)| candidates[at].moved == 0;
        let order = |one: &(i128, usize), other: &(i128, usize)| {
            let by_rate = rate(*one).total_cmp(&rate(*other));
            is_free(*one).cmp(&is_free(*other)).then(by_rate).then(other.1.cmp(&one.1))
        };
        gains.filter(|(gain, _)| *gain > 0).max_by(order).map(|(_, at)| at)
    }
}
