//! A plan as JSON.

use super::parts::FindingFigures;
use super::text::text_of;
use crate::analysis::{Plan, PlanStep};
use crate::error::Error;
use crate::figures::figures;
use crate::recording::DeviceView;
use crate::report::{plan_answer, planned};

/// Increases when a key is removed or changes its meaning.
const VERSION: u32 = 1;

figures! {
    /// All figures are bytes.
    struct PlanDocument(device: &DeviceView<'_>, plan: &Plan) {
        version: u32 = VERSION,
        device: String = device.device.to_string(),
        answer: Vec<String> = plan_answer(device, plan),
        budget_bytes: u64 = plan.budget,
        recorded_peak_bytes: u64 = plan.recorded,
        peak_bytes: u64 = plan.peak(),
        short_bytes: u64 = plan.short(),
        moved_bytes: u64 = plan.moved(),
        tried: usize = plan.candidates,
        knows_uses: bool = plan.knows_uses,
        changes: Vec<ChangeFigures> = plan.steps.iter().map(|step| ChangeFigures::of(device, step)).collect(),
    }

    struct ChangeFigures(device: &DeviceView<'_>, step: &PlanStep) {
        #[serde(flatten)]
        finding: FindingFigures = FindingFigures::of(&planned(device, step)),
        /// The peak after this change and all earlier ones.
        then_peak_bytes: u64 = step.peak,
        moved_bytes: u64 = step.moved,
    }
}

/// A plan for a device, as JSON.
///
/// # Errors
/// Never, because text can always be written.
pub fn plan_json(device: &DeviceView<'_>, plan: &Plan) -> Result<String, Error> {
    text_of(&PlanDocument::of(device, plan))
}
