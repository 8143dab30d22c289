//! `leaks`: the report on the end of the recording.

use clap::Args;
use memtrace_core::analysis::Moment;

use super::report;
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;

/// Print what is live at the end
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace leaks
  cargo memtrace leaks run.memtrace --from step:2 --top 5")]
pub(crate) struct LeaksArgs {
    #[command(flatten)]
    reading: ReadingArgs,
}

pub(crate) fn run(args: &LeaksArgs) -> Result<(), CommandFailure> {
    report::show(&args.reading, Moment::End, Vec::new(), |_| {})
}
