//! Plans: searches for the smallest set of changes with which a program stays within a budget, and computes the peak by
//! replaying all of them together.

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
    /// The changes with which at most `budget` bytes are live at once. The price of a change is the number of bytes
    /// that it moves to the host. Changes without a price come first. No change of the result can be left out, but a
    /// smaller set may exist.
    ///
    /// # Errors
    /// If the log has lost records, or is a sample: the peak with changes is then not known.
    pub fn plan(&self, budget: u64) -> Result<Plan, Error> {
        let log = LogReplay::of(self).ok_or_else(|| {
            let why = "its log does not reproduce the peak: it has lost records, or is a sample";
            Error::allocator(format!("cannot plan for {}: {why}", self.device))
        })?;
        let candidates = candidates::all(self, &log);
        // If the budget cannot be reached, the lowest reachable peak replaces it.
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

/// Sorts the changes: those that move nothing and lower the peak most come first, those that lower it only together
/// with others last.
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
    // If two changes affect the same block, only the first one counts. So another order may give a higher peak.
    if peak(&sorted) <= peak(&chosen) { sorted } else { chosen }
}

/// Of the records whose total becomes lower, the one whose total was highest before the change.
fn most_changed(log: &LogReplay, before: &[LogChange], after: &[LogChange]) -> usize {
    let lowered = log.totals(before).zip(log.totals(after)).enumerate().filter(|(_, (before, after))| after < before);
    lowered.max_by_key(|(_, (before, _))| *before).map_or(0, |(at, _)| at)
}
