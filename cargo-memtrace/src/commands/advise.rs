//! `advise`: the findings of the report.

use clap::Args;
use memtrace_core::analysis::Moment;

use super::report;
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;

/// Print what could be better, the largest saving first
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace advise
  cargo memtrace advise run.memtrace --device cuda:0 --json")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    reading: ReadingArgs,
}

pub(crate) fn run(AdviseArgs { reading }: &AdviseArgs) -> Result<(), CommandFailure> {
    report::show(reading, Moment::Peak, Vec::new(), |report| {
        (report.sections, report.totals, report.notes) = (Vec::new(), Vec::new(), Vec::new());
        if report.findings.is_empty() {
            report.answer.push("No findings: memtrace knows of nothing that could be better.".to_owned());
        }
    })
}
