//! `plan`: the changes that keep a program within a budget. Exit code 0 if there are such changes, 1 if not, 3 if the
//! recording lacks memory.

use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::{Card, Fit};
use memtrace_core::export::plan_json;
use memtrace_core::report::{Report, plan_answer, plan_section};
use memtrace_core::{Bytes, DeviceView, Recording};

use super::fit;
use crate::arguments::SelectionArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

/// Name the changes with which the peak stays within a budget
#[derive(Args)]
#[command(
    after_help = "BUDGET is what may be live at once (20GiB), or a card that the program is to fit on (RTX-4090; `fit` lists them). What CUDA takes
of the card is subtracted.
The changes are those of the findings, at each peak that remains: memory that is freed earlier or allocated later, outputs over
inputs, operators in parts, and at last what is moved to the host or computed again. Record with --uses; otherwise few changes are known.

Exit codes: 0 there are such changes, 1 not enough, 2 wrong use or unreadable input, 3 undecided: the program may need more than was recorded.

Examples:
  cargo memtrace plan memtrace.memtrace 20GiB
  cargo memtrace plan run.memtrace RTX-4090"
)]
pub(crate) struct PlanArgs {
    /// A recording
    file: PathBuf,
    /// Bytes that may be live, or a card
    #[arg(value_name = "BUDGET")]
    budget: String,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(crate) fn run(args: &PlanArgs) -> Result<(), CommandFailure> {
    let recording = input::read_selected(Some(&args.file), &args.selection)?;
    let views = Recording::new(&recording.data);
    let device = input::device_of(&views, &args.selection)?;
    let (budget, card) = budget(device, &args.budget)?;
    let plan = device.plan(budget)?;
    let doubt = if card.is_some() { Fit::doubt(device) } else { Fit::doubt_of_peak(device) };
    if args.selection.json {
        output::print_shown(&plan_json(device, &plan)?)?;
    } else {
        let answer = card.into_iter().chain(plan_answer(device, &plan)).collect();
        let sections = (!plan.steps.is_empty()).then(|| plan_section(device, &plan)).into_iter().collect();
        let more = doubt.map(|why| format!("The program may need more than the recording says: {why}."));
        let notes = recording.notes.iter().cloned().chain(more).collect();
        let report = Report { answer, sections, notes, ..Report::default() };
        output::print(&report, None, &args.selection)?;
    }
    match (plan.short(), doubt) {
        (0, None) => Ok(()),
        (0, Some(why)) => {
            Err(CommandFailure::Undecided(vec![format!("the recording does not say what is needed: {why}")]))
        }
        (short, _) => Err(CommandFailure::Check(vec![format!(
            "the peak stays {} above the budget of {}",
            Bytes(short),
            args.budget
        )])),
    }
}

/// The bytes that may be live, and for a card the line that explains this number.
fn budget(device: &DeviceView<'_>, text: &str) -> Result<(u64, Option<String>), CommandFailure> {
    if let Some(card) = Card::named(text) {
        let fit = Fit::of(device, card);
        let left = fit.left_for_live(device);
        let beside = Bytes(fit.card.memory - left);
        let line = format!(
            "{} has {}: {} for the program, up to {beside} for CUDA beside.",
            fit.card.name,
            Bytes(fit.card.memory),
            Bytes(left)
        );
        return Ok((left, Some(line)));
    }
    match memtrace_core::parse_bytes(text) {
        Ok(bytes) => Ok((bytes, None)),
        Err(_) => fit::card(text).map(|card| (card.memory, None)),
    }
}
