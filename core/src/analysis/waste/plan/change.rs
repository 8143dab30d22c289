//! What a plan says.

use super::super::{IdleMemory, InPlace, OperatorTemporaries, Ungraphed, Waste};
use crate::analysis::LiveTwice;
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
    /// Values that are on the host, or computed again, while nothing uses them; so many blocks, the first of so many that
    /// the line allocates.
    Idle(IdleMemory, [u64; 2]),
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
