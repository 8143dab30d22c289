//! The changes of a plan, worded as findings.

use super::finding::{Cost, Finding};
use super::graphs::{kept_after_its_pass, never_needed};
use super::model::{own_step, replaced};
use super::uses::{idle_by, over_input, temporaries_of, wasted_by};
use crate::analysis::{IdleMemory, PlanStep, PlannedChange};
use crate::recording::DeviceView;
use crate::units::grouped;

/// The change of one step of a plan, as a finding. Its cost is what the step saves.
pub fn planned(device: &DeviceView<'_>, step: &PlanStep) -> Finding {
    let finding = match &step.change {
        PlannedChange::Waste(row) => wasted_by(device, row),
        PlannedChange::LiveTwice(row) => replaced(device, row, step.saves),
        PlannedChange::KeptByVariables(row) => never_needed(row, device),
        PlannedChange::KeptLoss(row) => kept_after_its_pass(row, device),
        PlannedChange::InPlace(row) => over_input(row),
        PlannedChange::InParts(row) => temporaries_of(row),
        PlannedChange::OwnStep(largest, bytes) => own_step(device, *bytes, largest, Some(step.peak)),
        PlannedChange::Idle(row, blocks) => offloaded(row, *blocks),
    };
    Finding { cost: Cost::OfPeak(step.saves), ..finding }
}

fn offloaded(row: &IdleMemory, [blocks, all]: [u64; 2]) -> Finding {
    let finding = idle_by(row);
    let which = match blocks {
        _ if blocks == all => return finding,
        1 => format!("The first of the {} such blocks that the line allocates is enough.", grouped(all)),
        _ => format!(
            "The first {} of the {} such blocks that the line allocates are enough.",
            grouped(blocks),
            grouped(all)
        ),
    };
    Finding { advice: [vec![which], finding.advice].concat(), ..finding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_blocks_are_enough_is_said_unless_all_are_needed() {
        let first = |blocks, all| offloaded(&IdleMemory::default(), [blocks, all]).advice.swap_remove(0);
        assert_eq!(first(1, 6), "The first of the 6 such blocks that the line allocates is enough.");
        assert_eq!(first(3, 6), "The first 3 of the 6 such blocks that the line allocates are enough.");
        assert!([1, 6].into_iter().all(|all| first(all, all) == idle_by(&IdleMemory::default()).advice[0]));
    }
}
