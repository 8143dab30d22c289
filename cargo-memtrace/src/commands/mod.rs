//! The commands. Each is a file here, with its arguments, its help and its code, and a row of the list below.

mod advise;
mod baselines;
mod check;
mod completions;
mod conclusion;
mod diff;
mod doctor;
mod explain;
mod export;
mod fit;
mod flamegraph;
mod growth;
mod leaks;
mod man;
mod plan;
mod replay;
mod report;
mod run;
mod temporaries;
mod test;
mod timeline;
mod top;
mod view;

use std::ffi::OsString;
use std::process::{ExitCode, Termination};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::called;
use crate::failure::CommandFailure;

/// Records Rust programs that use candle or cudarc, and says what held the memory at the peak: source line, operator,
/// module, parameter and scope, to the byte.
#[derive(Parser)]
#[command(
    name = "cargo memtrace",
    bin_name = "cargo memtrace",
    version,
    arg_required_else_help = true,
    after_help = examples()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The definition of the command line. The program's name is the one by which the user calls it.
fn definition() -> clap::Command {
    called::in_help(Cli::command())
}

/// The command that the arguments ask for.
pub(crate) fn understood(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Command, clap::Error> {
    let mut definition = definition();
    let matches = definition.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map(|cli| cli.command).map_err(|error| error.format(&mut definition))
}

fn examples() -> String {
    let files = memtrace_core::readable();
    format!(
        "Examples:
  cargo memtrace run --release                     build, run and record this package
  cargo memtrace run --features cuda --simulate 24GiB     the same on a simulated GPU
  cargo memtrace report                            what held the memory at the peak of the newest recording
  cargo memtrace explain src/train.rs:32           all blocks of this line
  cargo memtrace diff before.memtrace after.memtrace      what a change did
  cargo memtrace check --peak 6GiB                 exit code 1 if the peak is higher
  cargo memtrace help run                          more about a command, with examples

FILE is {files}, or nothing: the newest recording under cargo's target folder.
Exit codes: 0 success, 1 a check failed, 2 wrong use or unreadable input, 3 a check is undecided."
    )
}

macro_rules! commands {
    ($($name:ident($module:ident::$args:ident),)*) => {
        #[derive(Subcommand)]
        pub(crate) enum Command {
            $($name($module::$args),)*
        }

        impl Command {
            pub(crate) fn run(&self) -> Result<ExitCode, CommandFailure> {
                match self {
                    $(Self::$name(args) => $module::run(args).map(Termination::report),)*
                }
            }
        }
    };
}

// The commands, in the order of the help.
commands! {
    Run(run::RunArgs),
    Test(test::TestArgs),
    Report(report::ReportArgs),
    Top(top::TopArgs),
    Advise(advise::AdviseArgs),
    Explain(explain::ExplainArgs),
    Leaks(leaks::LeaksArgs),
    Growth(growth::GrowthArgs),
    Temporaries(temporaries::TemporariesArgs),
    Diff(diff::DiffArgs),
    Flamegraph(flamegraph::FlamegraphArgs),
    Timeline(timeline::TimelineArgs),
    View(view::ViewArgs),
    Export(export::ExportArgs),
    Check(check::CheckArgs),
    Fit(fit::FitArgs),
    Plan(plan::PlanArgs),
    Replay(replay::ReplayArgs),
    Baselines(baselines::BaselinesArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}
