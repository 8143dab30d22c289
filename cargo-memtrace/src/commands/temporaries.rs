//! `temporaries`: one table of the report.

use clap::Args;
use memtrace_core::analysis::Moment;

use super::report;
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;

/// Print blocks that were freed soon after they were allocated
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace temporaries
  cargo memtrace temporaries run.memtrace --device cpu --top 5")]
pub(crate) struct TemporariesArgs {
    #[command(flatten)]
    reading: ReadingArgs,
}

pub(crate) fn run(TemporariesArgs { reading }: &TemporariesArgs) -> Result<(), CommandFailure> {
    report::show(reading, Moment::Peak, vec!["temporaries".to_owned()], |report| {
        (report.findings, report.totals) = (Vec::new(), Vec::new());
        if report.sections.is_empty() {
            report.answer = vec!["No block was freed soon after it was allocated.".to_owned()];
        }
    })
}
