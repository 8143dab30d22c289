//! A plan for a memory budget: an answer, and the plan's changes worded as findings.

use super::{Section, planned};
use crate::analysis::Plan;
use crate::recording::DeviceView;
use crate::snapshot::Device;
use crate::units::{Bytes, counted};

/// Says whether the changes keep the peak within the budget.
pub fn plan_answer(device: &DeviceView<'_>, plan: &Plan) -> Vec<String> {
    let (on, budget) = (device.device, Bytes(plan.budget));
    let [recorded, peak] = [plan.recorded, plan.peak()].map(Bytes);
    let changes = counted(plan.steps.len() as u64, "change");
    if plan.recorded <= plan.budget {
        return vec![format!("Nothing needs to change: the peak on {on} is {recorded}, within {budget}.")];
    }
    let mut answer = match (plan.short(), plan.steps.is_empty()) {
        (0, _) => vec![format!("{changes} would keep the peak on {on} within {budget}: {peak} instead of {recorded}.")],
        (short, true) => {
            vec![format!("No known change helps: the peak on {on} is {recorded}, {} above {budget}.", Bytes(short))]
        }
        (short, false) => vec![
            format!("These changes are not enough: {} above {budget}.", Bytes(short)),
            format!("With {changes} the peak on {on} would be {peak} instead of {recorded}."),
        ],
    };
    if !plan.steps.is_empty() {
        answer.push(match plan.moved() {
            0 => "Nothing is moved to the host.".to_owned(),
            moved => format!("In the whole recording {} would be moved to the host or back.", Bytes(moved)),
        });
    }
    if !plan.knows_uses && matches!(device.device, Device::Cuda(_)) {
        let next =
            if device.data().is_python() { "PyTorch's snapshots do not have them" } else { "record with --uses" };
        answer.push(format!("Few changes are known, because uses of blocks were not recorded: {next}."));
    }
    answer
}

/// The changes of a plan.
pub fn plan_section(device: &DeviceView<'_>, plan: &Plan) -> Section {
    let mut section = Section::of_columns("plan", "The changes", &[]);
    let lines = plan.steps.iter().zip(1..).flat_map(|(step, number)| planned(device, step).lines(number));
    section.about = lines.collect();
    let tried = counted(plan.candidates as u64, "change");
    let were = if plan.candidates == 1 { "was" } else { "were" };
    let needed = if plan.steps.len() > 1 { "; each of these is needed, but other sets may be smaller" } else { "" };
    section.notes = vec![format!("{tried} {were} tried{needed}. The peak is that of a replay.")];
    section
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};
    use crate::snapshot::{BlockUse, BlockUses, GpuWork, SnapshotData};

    /// Three blocks of 1 MiB; the first is used for the last time before the others are allocated. No uses are recorded
    /// if `used` is false.
    fn program(used: bool) -> SnapshotData {
        let mut story = Story::cuda(0);
        story.alloc("old", 1 << 20).on(LINE_7).alloc("one", 1 << 20).on(LINE_9).alloc("other", 1 << 20).on(LINE_9);
        let mut data = story.free("old").free("one").free("other").build();
        let uses = |seq: u64, operation| {
            let last = BlockUse { operation, after_alloc: operation, ..BlockUse::default() };
            let seq = NonZeroU64::new(seq).unwrap();
            BlockUses { first: Some(last), last: Some(last), count: 1, freed_at: Some(3), ..BlockUses::new(seq, 0) }
        };
        data.devices[0].uses = if used { vec![uses(1, 1), uses(2, 3), uses(3, 3)] } else { Vec::new() };
        data.gpu_work = Some(GpuWork { kernels: vec!["add".into()], ..GpuWork::default() });
        data
    }

    fn said(data: &SnapshotData, budget: u64) -> (Vec<String>, Vec<String>) {
        let device = DeviceView::of(data, &data.devices[0]);
        let plan = device.plan(budget).unwrap();
        let section = plan_section(&device, &plan);
        (plan_answer(&device, &plan), [section.about, section.notes].concat())
    }

    #[test]
    fn a_plan_says_what_it_reaches_and_names_its_changes() {
        let (answer, changes) = said(&program(true), 2 << 20);
        assert_eq!(
            answer,
            [
                "1 change would keep the peak on cuda:0 within 2.000 MiB: 2.000 MiB instead of 3.000 MiB.",
                "Nothing is moved to the host.",
            ]
        );
        assert!(changes[0].starts_with("1. 1.000 MiB of the peak: 1.000 MiB, held "), "{changes:?}");
        assert_eq!(changes[1], "   at src/model.rs:7 (Net::forward)");
        assert!(changes.iter().any(|line| line == "   The peak would be 2.000 MiB: 2,097,152 bytes."), "{changes:?}");
        assert_eq!(changes.last().unwrap(), "3 changes were tried. The peak is that of a replay.");
    }

    #[test]
    fn a_plan_that_falls_short_says_by_how_much() {
        let (answer, _) = said(&program(true), 1 << 20);
        assert_eq!(
            answer[..2],
            [
                "These changes are not enough: 1.000 MiB above 1.000 MiB.",
                "With 1 change the peak on cuda:0 would be 2.000 MiB instead of 3.000 MiB.",
            ]
        );
        let (answer, _) = said(&program(false), 1 << 20);
        assert_eq!(
            answer,
            [
                "No known change helps: the peak on cuda:0 is 3.000 MiB, 2.000 MiB above 1.000 MiB.",
                "Few changes are known, because uses of blocks were not recorded: record with --uses.",
            ]
        );
    }
}
