//! `temporaries`: one table of the report.

use clap::Args;
use memtrace_core::analysis::Moment;

use super::report::{options, report_of};
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

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
    let recording = input::read_selected(reading.file.as_deref(), &reading.selection)?;
    let options = options(reading, Moment::Peak, vec!["temporaries".to_owned()]);
    let mut report = report_of(&recording, &options)?;
    (report.findings, report.totals) = (Vec::new(), Vec::new());
    if report.sections.is_empty() {
        report.answer = vec!["No block was freed soon after it was allocated.".to_owned()];
    }
    output::print(&report, Some((&recording.data, &options)), &reading.selection)
}
