//! The smallest set of changes that this can find with which a program stays below a budget, and the peak then, by replay of all of them
//! together.

mod candidates;
mod change;
mod search;
#[cfg(test)]
mod tests;

use self::candidates::Candidate;
pub(crate) use self::change::PlannedChange;
pub use self::change::{Plan, PlanStep};
use super::replay::LogReplay;
use crate::analysis::absence::LogChange;
use crate::error::Error;
use crate::recording::DeviceView;

impl DeviceView<'_> {
    /// The changes with which no more than `budget` bytes are live at once. What a change moves to the host is its price: changes without one come
    /// first. None of the changes found can be left out; that there is no smaller set is not shown.
    ///
    /// # Errors
    /// If the log has lost records, or is a sample: it does not say what the peak would be.
    pub fn plan(&self, budget: u64) -> Result<Plan, Error> {
        let log = LogReplay::of(self).ok_or_else(|| {
            let why = "its log does not reproduce the peak: it has lost records, or is a sample";
            Error::allocator(format!("cannot plan for {}: {why}", self.device))
        })?;
        let candidates = candidates::all(self, &log);
        // What cannot be reached is replaced by the lowest peak that can be.
        let lowest = search::lowest(&log, &candidates);
        let mut plan = Plan {
            budget,
            recorded: self.peak.bytes,
            steps: Vec::new(),
            candidates: candidates.len(),
            knows_uses: !self.uses.is_empty(),
        };
        let chosen = search::choose(&log, &candidates, budget.max(lowest));
        let chosen: Vec<Candidate> = chosen.into_iter().map(|at| candidates[at].clone()).collect();
        let chosen = search::with_fewest_blocks(&log, chosen, budget);
        let chosen = by_saving(&log, chosen.iter().collect());
        let mut changes = Vec::new();
        for (count, candidate) in chosen.iter().enumerate() {
            let before = std::mem::replace(&mut changes, search::changes(&chosen[..=count]));
            let peak = u64::try_from(log.peak(&changes)).unwrap_or(0);
            let saves = plan.peak().saturating_sub(peak);
            let change = candidate.at(self, most_changed(&log, &before, &changes), (saves, peak));
            plan.steps.push(PlanStep { change, peak, saves, moved: candidate.moved });
        }
        Ok(plan)
    }
}

/// First what moves nothing, and of that what lowers the peak most; last what lowers it only where others have.
fn by_saving<'c>(log: &LogReplay, chosen: Vec<&'c Candidate>) -> Vec<&'c Candidate> {
    let peak = |chosen: &[&Candidate]| log.peak(&search::changes(chosen));
    let mut sorted = chosen.clone();
    for at in 0..sorted.len() {
        let before = peak(&sorted[..at]);
        let rank = |next: &usize| {
            let after = peak(&[&sorted[..at], &[sorted[*next]]].concat());
            (after == before, sorted[*next].moved > 0, after)
        };
        if let Some(best) = (at..sorted.len()).min_by_key(rank) {
            sorted[at..=best].rotate_right(1);
        }
    }
    // Where two changes decide of a block, the first one does.
    if peak(&sorted) <= peak(&chosen) { sorted } else { chosen }
}

/// The record at which most was live of those where a change takes something away.
fn most_changed(log: &LogReplay, before: &[LogChange], after: &[LogChange]) -> usize {
    let lowered = log.totals(before).zip(log.totals(after)).enumerate().filter(|(_, (before, after))| after < before);
    lowered.max_by_key(|(_, (before, _))| *before).map_or(0, |(at, _)| at)
}
