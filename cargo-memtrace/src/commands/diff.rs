//! `diff`: what changed between two recordings, between two moments of one, or between the ranks of two jobs.

mod ranks;

use std::path::{Path, PathBuf};

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
  cargo memtrace diff a0.memtrace a1.memtrace --after b0.memtrace b1.memtrace    the same of files

Of two jobs, each rank is compared with the rank of its number, at its own peak. The tables are over all ranks, by line
unless --by names others.")]
pub(crate) struct DiffArgs {
    /// The recordings before and after the change, or the folders of two jobs' ranks; with --after, the files before
    #[arg(required = true, value_names = ["BEFORE", "AFTER"])]
    files: Vec<PathBuf>,
    /// The files of the ranks after the change
    #[arg(long, value_name = "FILE", num_args = 1..)]
    after: Vec<PathBuf>,
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

/// One side of the comparison: one recording, or several ranks.
struct Side {
    /// The side's name in error messages.
    name: String,
    files: Vec<PathBuf>,
}

impl Side {
    /// The recordings of a folder that has several are ranks only if the other side is a folder or several files, too.
    fn of(name: &str, paths: &[PathBuf], are_ranks: bool) -> Result<Self, CommandFailure> {
        let name = match paths {
            [path] => path.display().to_string(),
            _ => name.to_owned(),
        };
        Ok(Self { name, files: if are_ranks { input::files(paths)? } else { paths.to_vec() } })
    }

    fn first(&self) -> Option<&Path> {
        self.files.first().map(PathBuf::as_path)
    }
}

/// The sides before and after the change.
fn sides(args: &DiffArgs) -> Result<[Side; 2], CommandFailure> {
    let (before, after) = match (&args.files[..], &args.after[..]) {
        ([before, after], []) => (std::slice::from_ref(before), std::slice::from_ref(after)),
        (_, []) => {
            return Err(CommandFailure::usage(
                "give BEFORE and AFTER, or several recordings and --after with those after the change",
            ));
        }
        sides => sides,
    };
    let are_ranks = !args.after.is_empty() || args.files.iter().all(|path| path.is_dir());
    Ok([Side::of("before", before, are_ranks)?, Side::of("after", after, are_ranks)?])
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
    let sides = sides(args)?;
    if sides.iter().any(|side| side.files.len() > 1) {
        return ranks::show(args, &options, &sides);
    }
    let [before, after] = sides.each_ref().map(Side::first);
    let is_one = before == after;
    let before = input::read_selected(before, &args.selection)?;
    let other = if is_one { None } else { Some(input::read_selected(after, &args.selection)?) };
    let progress = Progress::of("comparing the recordings");
    let report = Report::of_diff(&before.data, &other.as_ref().unwrap_or(&before).data, &options)?;
    drop(progress);
    print(args, &report)
}

fn print(args: &DiffArgs, report: &Report) -> Result<(), CommandFailure> {
    if args.md { output::print_shown(&markdown(report)) } else { output::print(report, None, &args.selection) }
}
