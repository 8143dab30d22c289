//! `diff`: what changed between two recordings, or between two moments of one.

use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::{Key, Moment};
use memtrace_core::export::markdown;
use memtrace_core::report::{DiffOptions, Report};

use crate::arguments::{self, SelectionArgs};
use crate::failure::CommandFailure;
use crate::progress::Progress;
use crate::{input, moment, output};

/// Print what changed between two recordings, or two moments of one
#[derive(Args)]
#[command(after_help = "Rows are matched by function, operator and name: an edit that moves lines is no change.

Examples:
  cargo memtrace diff before.memtrace after.memtrace
  cargo memtrace diff before.memtrace after.memtrace --by line --md >>pull-request.md
  cargo memtrace diff run.memtrace run.memtrace --at step:2 --at-after step:9")]
pub(crate) struct DiffArgs {
    /// The recording before the change
    before: PathBuf,
    /// The recording after the change
    after: PathBuf,
    /// Tables to print. By operator, a PyTorch snapshot and a recording of candle are paired
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = arguments::key())]
    by: Vec<Key>,
    /// The moment of both: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = moment::parse)]
    at: Moment,
    /// Another moment of the second recording
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    at_after: Option<Moment>,
    /// Fold rows that changed less
    #[arg(long, value_name = "SIZE", default_value = "64 KiB", value_parser = moment::size)]
    threshold: u64,
    /// Print Markdown, for a pull request
    #[arg(long, conflicts_with = "json")]
    md: bool,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(crate) fn run(args: &DiffArgs) -> Result<(), CommandFailure> {
    let options = DiffOptions {
        keys: args.by.clone(),
        device: args.selection.device,
        before: args.at.clone(),
        after: args.at_after.clone().unwrap_or_else(|| args.at.clone()),
        rows: args.selection.top,
        threshold: args.threshold,
    };
    let before = input::read_selected(Some(&args.before), &args.selection)?;
    let other = match args.before == args.after {
        true => None,
        false => Some(input::read_selected(Some(&args.after), &args.selection)?),
    };
    let progress = Progress::of("comparing the recordings");
    let report = Report::of_diff(&before.data, &other.as_ref().unwrap_or(&before).data, &options)?;
    drop(progress);
    if args.md { output::print_shown(&markdown(&report)) } else { output::print(&report, None, &args.selection) }
}
