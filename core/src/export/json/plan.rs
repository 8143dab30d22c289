//! A plan as JSON.

use serde::Serialize;

use super::parts::FindingFigures;
use crate::analysis::{Plan, PlanStep};
use crate::error::Error;
use crate::recording::DeviceView;
use crate::report::{plan_answer, planned};
use crate::visible;

/// Higher if a key is gone or has another meaning.
const VERSION: u32 = 1;

/// All figures are bytes.
#[derive(Serialize)]
struct PlanDocument {
    version: u32,
    device: String,
    answer: Vec<String>,
    budget_bytes: u64,
    recorded_peak_bytes: u64,
    peak_bytes: u64,
    short_bytes: u64,
    moved_bytes: u64,
    tried: usize,
    knows_uses: bool,
    changes: Vec<ChangeFigures>,
}

#[derive(Serialize)]
struct ChangeFigures {
    #[serde(flatten)]
    finding: FindingFigures,
    /// The peak with this change and those before it.
    then_peak_bytes: u64,
    moved_bytes: u64,
}

/// A plan for a device, as JSON.
///
/// # Errors
/// Never: text can always be written.
pub fn plan_json(device: &DeviceView<'_>, plan: &Plan) -> Result<String, Error> {
    let change = |step: &PlanStep| ChangeFigures {
        finding: FindingFigures::of(&planned(device, step)),
        then_peak_bytes: step.peak,
        moved_bytes: step.moved,
    };
    let document = PlanDocument {
        version: VERSION,
        device: device.device.to_string(),
        answer: plan_answer(device, plan),
        budget_bytes: plan.budget,
        recorded_peak_bytes: plan.recorded,
        peak_bytes: plan.peak(),
        short_bytes: plan.short(),
        moved_bytes: plan.moved(),
        tried: plan.candidates,
        knows_uses: plan.knows_uses,
        changes: plan.steps.iter().map(change).collect(),
    };
    let text = serde_json::to_string_pretty(&document).map_err(std::io::Error::from)?;
    Ok(visible::json(text + "\n"))
}
