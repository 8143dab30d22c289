//! The smallest set of changes that this can find with which a program stays below a budget, and the peak then, by replay of all of them
//! together.

mod candidates;
mod search;
#[cfg(test)]
mod tests;

use self::candidates::Candidate;
use super::replay::LogReplay;
use super::{IdleMemory, InPlace, OperatorTemporaries, Ungraphed, Waste};
use crate::analysis::LiveTwice;
use crate::analysis::absence::LogChange;
use crate::error::Error;
use crate::recording::DeviceView;
use crate::snapshot::Block;

/// A change of the program, with what the findings say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedChange {
    /// Memory that is freed earlier, allocated later, or not at all.
    Waste(Waste),
    /// A variable that is replaced by the next one.
    LiveTwice(LiveTwice),
    /// A result that does not keep what it was computed from.
    KeptByVariables(Ungraphed),
    /// The graph of a loss that goes with its backward pass.
    KeptLoss(Ungraphed),
    /// An output in the memory of its input.
    InPlace(InPlace),
    /// An operator that works on parts.
    InParts(OperatorTemporaries),
    /// A step of one's own instead of `AdamW::step`: the largest of its temporaries at once, and the bytes of all.
    OwnStep(Block, u64),
    /// Values that are on the host, or computed again, while nothing uses them.
    Idle(IdleMemory),
}

/// A change, and what it does in addition to those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub(crate) change: PlannedChange,
    /// The peak in bytes with this change and those before it.
    pub peak: u64,
    /// Reduction of the peak in bytes in addition to those before it; 0 if the peak only goes down with a later one.
    pub saves: u64,
    /// Bytes that are moved to the host and back in the whole recording; 0 if none need to be.
    pub moved: u64,
}

/// Changes with which a device's peak stays within a budget, or as near to it as they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that may be live.
    pub budget: u64,
    /// The peak of the recording in bytes.
    pub recorded: u64,
    /// The changes, those that move nothing first.
    pub steps: Vec<PlanStep>,
    /// How many changes were tried.
    pub candidates: usize,
    /// Where blocks are used is known: without that, few changes are.
    pub knows_uses: bool,
}

impl Plan {
    /// The peak in bytes with all changes.
    pub fn peak(&self) -> u64 {
        self.steps.last().map_or(self.recorded, |step| step.peak)
    }

    /// Bytes that are still too many.
    pub fn short(&self) -> u64 {
        self.peak().saturating_sub(self.budget)
    }

    /// Bytes that are moved to the host and back in the whole recording.
    pub fn moved(&self) -> u64 {
        self.steps.iter().fold(0, |sum, step| sum.saturating_add(step.moved))
    }
}

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
        let chosen = search::choose(&log, &candidates, budget);
        let mut plan = Plan {
            budget,
            recorded: self.peak.bytes,
            steps: Vec::new(),
            candidates: candidates.len(),
            knows_uses: !self.uses.is_empty(),
        };
        let chosen: Vec<&Candidate> = chosen.into_iter().map(|at| &candidates[at]).collect();
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

/// The record at which most was live of those where a change takes something away.
fn most_changed(log: &LogReplay, before: &[LogChange], after: &[LogChange]) -> usize {
    let lowered = log.totals(before).zip(log.totals(after)).enumerate().filter(|(_, (before, after))| after < before);
    lowered.max_by_key(|(_, (before, _))| *before).map_or(0, |(at, _)| at)
}
