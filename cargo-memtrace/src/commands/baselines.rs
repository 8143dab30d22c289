//! `baselines`: shows and accepts changed peaks of tests, as snapshot tests do; removes unused baselines.

mod pending;
mod prune;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use memtrace_core::Bytes;
use memtrace_core::baseline::{BaselineEntry, LineChange, changes};
use memtrace_core::units::{grouped, signed};
use pending::{PendingFile, read};

use crate::failure::CommandFailure;
use crate::{called, output};

/// Show and accept changed peaks of tests
#[derive(Args)]
#[command(after_help = "A test whose peak differs from its baseline leaves the new peak below cargo's target folder.
Review what changed, line by line, and accept it:

  cargo test                              a peak is over its baseline
  cargo memtrace baselines review         shows the change, and asks
  git diff                                the accepted baselines, to be committed

Where there is no terminal, `review` lists the changes and ends with 1 if there are any.")]
pub(crate) struct BaselinesArgs {
    #[command(subcommand)]
    action: BaselinesAction,
}

#[derive(Subcommand)]
enum BaselinesAction {
    /// Show each changed peak by line, and ask whether to accept it
    Review {
        /// Accept all of them
        #[arg(long)]
        accept: bool,
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
    },
    /// Accept all changed peaks
    Update {
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
    },
    /// Remove baselines that no test has any more
    #[command(
        after_help = "Runs the whole of `cargo test`, with the arguments after `--`. A baseline is removed if the run passed, used other
baselines of that file for that device but not this one, and if the source file beside it no longer has its name.
So the baselines of ignored tests, of other features and of GPUs that are not there stay.

Examples:
  cargo memtrace baselines prune
  cargo memtrace baselines prune --accept -- --workspace"
    )]
    Prune {
        /// Remove them without a question
        #[arg(long)]
        accept: bool,
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
        /// Arguments of `cargo test`
        #[arg(last = true)]
        args: Vec<OsString>,
    },
}

pub(crate) fn run(args: &BaselinesArgs) -> Result<ExitCode, CommandFailure> {
    match &args.action {
        BaselinesAction::Review { accept, paths } => review(paths, *accept),
        BaselinesAction::Update { paths } => update(paths),
        BaselinesAction::Prune { accept, paths, args } => prune::prune(paths, *accept, args),
    }
}

fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

fn review(paths: &[PathBuf], accept: bool) -> Result<ExitCode, CommandFailure> {
    let files = pending::files(paths)?;
    if files.is_empty() {
        output::print_lines(["No baseline has changed."])?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut left = 0;
    for file in &files {
        for entry in file.entries.entries() {
            output::print_lines(shown(file, entry)?)?;
            match (accept, is_interactive()) {
                (true, _) => file.accept(entry)?,
                (false, false) => left += 1,
                (false, true) => match answer("accept, skip or reject? [a/s/r] ", &['a', 's', 'r'])? {
                    Some('a') => file.accept(entry)?,
                    Some('r') => file.forget(entry)?,
                    _ => left += 1,
                },
            }
        }
    }
    if left > 0 {
        let name = called::name();
        output::print_lines([format!(
            "{left} to review; `{name} baselines review --accept` or `update` accepts them"
        )])?;
    }
    Ok(ExitCode::from(u8::from(left > 0 && !is_interactive())))
}

fn update(paths: &[PathBuf]) -> Result<ExitCode, CommandFailure> {
    let files = pending::files(paths)?;
    for (file, entry) in files.iter().flat_map(|file| file.entries.entries().iter().map(move |entry| (file, entry))) {
        output::print_lines([heading(file, entry)?])?;
        file.accept(entry)?;
    }
    if files.is_empty() {
        output::print_lines(["No baseline has changed."])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A changed peak in one line, for instance `tests/model.peaks.txt: forward on cpu: 97.66 KiB → 102.5 KiB, +4.883 KiB`.
fn heading(file: &PendingFile, entry: &BaselineEntry) -> Result<String, CommandFailure> {
    let known = read(&file.baselines)?.get(&entry.name, &entry.device).map(|known| known.peak);
    let change = match known {
        Some(was) => {
            let change = entry.peak as i64 - was as i64;
            format!("{} → {}, {}", Bytes(was), Bytes(entry.peak), signed(change))
        }
        None => format!("new, {}", Bytes(entry.peak)),
    };
    Ok(format!("{}: {} on {}: {change}", file.shown(), entry.name, entry.device))
}

/// The heading and the lines that changed, the largest change first.
fn shown(file: &PendingFile, entry: &BaselineEntry) -> Result<Vec<String>, CommandFailure> {
    let baselines = read(&file.baselines)?;
    let known = baselines.get(&entry.name, &entry.device).map_or(&[][..], |known| &known.lines);
    let mut lines = vec![heading(file, entry)?];
    for LineChange { now, was, line } in changes(known, &entry.lines) {
        if now == was {
            continue;
        }
        let change = signed(now as i64 - was as i64);
        lines.push(format!("  {change:>12}  {:>15} → {:>15}  {line}", grouped(was), grouped(now)));
    }
    lines.push(String::new());
    Ok(lines)
}

/// Reads one of these letters as the answer; `None` at the end of the input.
fn answer(question: &str, letters: &[char]) -> Result<Option<char>, CommandFailure> {
    loop {
        output::print_shown(question)?;
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| CommandFailure::usage(format!("cannot read the answer: {error}")))? == 0 {
            return Ok(None);
        }
        let first = line.trim().chars().next().map(|letter| letter.to_ascii_lowercase());
        if first.is_some_and(|letter| letters.contains(&letter)) {
            return Ok(first);
        }
        let _ = io::stdout().flush();
    }
}
