//! `check`: exit code 1 if a recording's peak is over a limit or a scope leaks, 3 if the recording does not show
//! whether it leaks. If several files or a folder are given, each rank must meet each limit.

mod limits;
mod outcome;
mod ranks;

use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_core::Recording;
use serde_json::json;

use self::outcome::CheckOutcome;
use crate::arguments::{RanksArgs, SelectionArgs};
use crate::failure::CommandFailure;
use crate::{input, moment, output};

/// Fail if a recording's peak or leaks are over a limit
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace check --peak 6GiB
  cargo memtrace check new.memtrace --baseline old.memtrace --tolerance 1%
  cargo memtrace check --no-leak
  cargo memtrace check ranks/ --peak 20GiB      each rank of a job: a file each

--no-leak judges each scope that ran repeatedly as `assert_no_leak!` judges code: caches that fill up and what is allocated once
are no leak. It needs scopes that run 5 times, or 12 times if memory grows, and a whole log.

Several files, or a folder with several, are ranks of a job. Every rank must pass every check.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// The largest peak that is allowed
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    peak: Option<u64>,
    /// Allow at most the peak of this recording
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// How far the peak may be over the baseline, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = moment::percent)]
    tolerance: f64,
    /// No scope may leave more memory with each run; undecided (exit code 3) if the recording does not show whether one does
    #[arg(long)]
    no_leak: bool,
    #[command(flatten)]
    ranks: RanksArgs,
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), CommandFailure> {
    if args.peak.is_none() && args.baseline.is_none() && !args.no_leak {
        return Err(CommandFailure::usage("nothing is checked: give --peak, --baseline or --no-leak"));
    }
    let files = input::files(&args.ranks.files)?;
    match &files[..] {
        [] | [_] => of_one(args, files.first().map(PathBuf::as_path)),
        _ => ranks::check(args, &files),
    }
}

fn of_one(args: &CheckArgs, file: Option<&Path>) -> Result<(), CommandFailure> {
    let selection = &args.selection;
    let file = input::read_selected(file, selection)?;
    let recording = Recording::new(&file.data);
    let device = recording.device_or_main(selection.device).ok_or_else(|| missing("the recording"))?;
    let (on, peak) = (device.device, device.peak.total());
    let mut outcomes = Vec::new();
    outcomes.extend(args.peak.map(|limit| limits::peak(on, peak, limit)));
    if let Some(baseline) = &args.baseline {
        let baseline = input::read(Some(baseline))?;
        let before = baseline.data.device(on).ok_or_else(|| missing("the baseline"))?;
        let limit = before.peak.total() as f64 * (1.0 + args.tolerance / 100.0);
        outcomes.push(limits::under(on, peak, limit as u64, &format!("the baseline and {} %,", args.tolerance)));
    }
    if args.no_leak {
        outcomes.extend(limits::no_leak(&recording, selection.device));
    }
    print(outcomes, selection.json)
}

fn missing(which: &str) -> CommandFailure {
    CommandFailure::usage(format!("{which} has nothing on this device; choose another with --device"))
}

fn print(outcomes: Vec<CheckOutcome>, json: bool) -> Result<(), CommandFailure> {
    if json {
        let row = |outcome: &CheckOutcome| json!({ "met": outcome.verdict.is_met(), "what": outcome.what });
        let value = json!({ "version": 1, "checks": outcomes.iter().map(row).collect::<Vec<_>>() });
        output::print_json(format!("{value:#}\n"))?;
    } else {
        output::print_lines(outcome::held(&outcomes))?;
    }
    outcome::verdict(outcomes)
}
