//! `advise`: the findings of the report.

use clap::Args;
use memtrace_core::analysis::Moment;
use memtrace_core::report::Report;

use super::report::options;
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

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
    let recording = input::read_selected(reading.file.as_deref(), &reading.selection)?;
    let options = options(reading, Moment::Peak, Vec::new());
    let mut report = Report::of(&recording.data, &options)?;
    (report.sections, report.totals, report.notes) = (Vec::new(), Vec::new(), Vec::new());
    if report.findings.is_empty() {
        report.answer.push("Nothing that memtrace knows of could be better.".to_owned());
    }
    output::print(&report, Some((&recording.data, &options)), &reading.selection)
}
