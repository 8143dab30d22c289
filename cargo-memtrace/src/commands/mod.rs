//! The commands, a file each.

mod baselines;
mod check;
mod conclusion;
mod diff;
mod doctor;
mod explain;
pub(crate) mod export;
mod fit;
mod flamegraph;
mod help;
mod report;
mod run;
mod test;
mod timeline;
mod view;

use std::process::ExitCode;

use crate::cli::{By, Command};
use crate::failure::CommandFailure;

pub(crate) fn run(command: Command) -> Result<ExitCode, CommandFailure> {
    match command {
        Command::Run(args) => return run::run(&args),
        Command::Test(args) => return test::test(&args),
        Command::Doctor(args) => return doctor::doctor(&args),
        Command::Report(args) => report::report(&args)?,
        Command::Advise(args) => report::advise(&args.reading)?,
        Command::Leaks(reading) => report::leaks(&reading)?,
        Command::Temporaries(reading) => report::temporaries(&reading)?,
        Command::Explain(args) => explain::explain(&args)?,
        Command::Diff(args) => diff::diff(&args)?,
        Command::Flamegraph(args) => flamegraph::flamegraph(&args)?,
        Command::Timeline(args) => timeline::timeline(&args)?,
        Command::View(args) => view::view(&args)?,
        Command::Baselines(args) => return baselines::baselines(&args.action),
        Command::Export(args) => export::export(&args)?,
        Command::Check(args) => check::check(&args)?,
        Command::Fit(args) => fit::fit(&args)?,
        Command::Completions { shell } => help::completions(shell)?,
        Command::Man => help::man()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The key of the section of a report.
fn section(by: By) -> &'static str {
    match by {
        By::Line => "peak_by_line",
        By::Function => "peak_by_function",
        By::Operator => "peak_by_operator",
        By::Module => "peak_by_module",
        By::Category => "peak_by_category",
        By::Scope => "peak_by_scope",
        By::Parameter => "peak_by_parameter",
        By::Name => "peak_by_name",
        By::Age => "peak_by_age",
        By::Thread => "peak_by_thread",
        By::Stream => "peak_by_stream",
        By::Crate => "peak_by_crate",
    }
}
