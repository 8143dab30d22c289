//! `diff`: what changed between two recordings, between two moments of one, or between the ranks of two jobs.

mod ranks;

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
  cargo memtrace diff run.memtrace run.memtrace --at step:2 --at-after step:9
  cargo memtrace diff before/ after/            the ranks of two jobs: folders with a file for each rank

Of two folders, each rank is compared with the rank of its number, at its own peak. The tables are over all ranks, by line
unless --by names others.")]
pub(crate) struct DiffArgs {
    /// The recording before the change, or the folder of a job's ranks
    before: PathBuf,
    /// The recording after the change, or the folder of a job's ranks
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
    /// Of recordings of several jobs in both folders this one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    job: Option<u32>,
    /// Another job of the second folder
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    job_after: Option<u32>,
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
    if let Some(folders) = ranks::folders(args)? {
        return ranks::show(args, &options, &folders);
    }
    let before = input::read_selected(Some(&args.before), &args.selection)?;
    let other = match args.before == args.after {
        true => None,
        false => Some(input::read_selected(Some(&args.after), &args.selection)?),
    };
    let progress = Progress::of("comparing the recordings");
    let report = Report::of_diff(&before.data, &other.as_ref().unwrap_or(&before).data, &options)?;
    drop(progress);
    print(args, &report)
}

fn print(args: &DiffArgs, report: &Report) -> Result<(), CommandFailure> {
    if args.md { output::print_shown(&markdown(report)) } else { output::print(report, None, &args.selection) }
}
