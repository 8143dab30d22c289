//! A plan: an answer, and its changes in the words of the findings.

use super::{Section, planned};
use crate::analysis::Plan;
use crate::recording::DeviceView;
use crate::snapshot::Device;
use crate::units::{Bytes, grouped};

/// Whether changes keep the peak within the budget, in sentences.
pub fn plan_answer(device: &DeviceView<'_>, plan: &Plan) -> Vec<String> {
    let (on, budget) = (device.device, Bytes(plan.budget));
    let [recorded, peak] = [plan.recorded, plan.peak()].map(Bytes);
    let changes = match plan.steps.len() {
        1 => "1 change".to_owned(),
        count => format!("{} changes", grouped(count as u64)),
    };
    if plan.recorded <= plan.budget {
        return vec![format!("Nothing needs to change: the peak on {on} is {recorded}, within {budget}.")];
    }
    let mut answer = match (plan.short(), plan.steps.is_empty()) {
        (0, _) => vec![format!("{changes} would keep the peak on {on} within {budget}: {peak} instead of {recorded}.")],
        (short, true) => {
            vec![format!(
                "No change is known that helps: the peak on {on} is {recorded}, {} above {budget}.",
                Bytes(short)
            )]
        }
        (short, false) => vec![
            format!("Not by these changes: {} short of {budget}.", Bytes(short)),
            format!("With {changes} the peak on {on} would be {peak} instead of {recorded}."),
        ],
    };
    if !plan.steps.is_empty() {
        answer.push(match plan.moved() {
            0 => "None of them moves anything to the host.".to_owned(),
            moved => format!("In the whole recording {} would be moved to the host or back.", Bytes(moved)),
        });
    }
    if !plan.knows_uses && matches!(device.device, Device::Cuda(_)) {
        answer.push("Where blocks are used was not recorded, so few changes are known: record with --uses.".to_owned());
    }
    answer
}

/// The changes of a plan.
pub fn plan_section(device: &DeviceView<'_>, plan: &Plan) -> Section {
    let mut section = Section::of_columns("plan", "The changes", &[]);
    let lines = plan.steps.iter().zip(1..).flat_map(|(step, number)| planned(device, step).lines(number));
    section.about = lines.collect();
    let tried = grouped(plan.candidates as u64);
    section.notes = vec![
        format!(
            "By replay of the recording with all of them. Of {tried} changes that were tried, none of these can be left"
        ),
        "out; that there is no smaller set is not shown.".to_owned(),
    ];
    section
}
