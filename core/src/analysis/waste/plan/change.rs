//! The contents of a plan.

use super::super::{IdleMemory, InPlace, OperatorTemporaries, Ungraphed, Waste};
use crate::analysis::LiveTwice;
use crate::snapshot::Block;

/// A change of the program, with the finding that describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedChange {
    /// Memory that is freed earlier, allocated later, or not at all.
    Waste(Waste),
    /// A variable that is freed when the next one is allocated.
    LiveTwice(LiveTwice),
    /// A result that does not keep its arguments.
    KeptByVariables(Ungraphed),
    /// The graph of a loss that is dropped after its backward pass.
    KeptLoss(Ungraphed),
    /// An output that overwrites its input.
    InPlace(InPlace),
    /// An operator that works on its tensor in parts.
    InParts(OperatorTemporaries),
    /// A custom optimizer step instead of `AdamW::step`: the largest of the temporaries that are live at once, and the
    /// bytes of all of them.
    OwnStep(Block, u64),
    /// Values that are moved to the host, or recomputed, while nothing uses them. The numbers count the line's idle
    /// blocks: those in the plan, which were allocated first, and all of them.
    Idle(IdleMemory, [u64; 2]),
}

/// A change, and its effect in addition to the changes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub(crate) change: PlannedChange,
    /// The peak in bytes with this change and those before it.
    pub peak: u64,
    /// Reduction of the peak in bytes, in addition to the changes before it; 0 if the peak only goes down with a later
    /// change.
    pub saves: u64,
    /// Bytes that are moved to the host and back in the whole recording; 0 if nothing needs to be moved.
    pub moved: u64,
}

/// Changes that keep a device's peak within a budget, or bring it as near to the budget as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The most bytes that may be live.
    pub budget: u64,
    /// The peak of the recording in bytes.
    pub recorded: u64,
    /// The changes. Those that move nothing to the host come first.
    pub steps: Vec<PlanStep>,
    /// Number of changes that were tried.
    pub candidates: usize,
    /// Whether uses of blocks are known. Without them, few changes are found.
    pub knows_uses: bool,
}

impl Plan {
    /// The peak in bytes with all changes.
    pub fn peak(&self) -> u64 {
        self.steps.last().map_or(self.recorded, |step| step.peak)
    }

    /// Bytes that still exceed the budget.
    pub fn short(&self) -> u64 {
        self.peak().saturating_sub(self.budget)
    }

    /// Bytes that are moved to the host and back in the whole recording.
    pub fn moved(&self) -> u64 {
        self.steps.iter().fold(0, |sum, step| sum.saturating_add(step.moved))
    }
}
