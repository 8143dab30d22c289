//! `top`: who holds memory now, in programs that are still running. It reads their recordings again as they grow. Each
//! reading of the files is a *look*.
//!
//! | file | holds |
//! |---|---|
//! | `targets` | which files are watched: named ones, a folder's, those that a process writes |
//! | `watch` | reads files that have grown, on a thread of its own |
//! | `view` | the choices made with keys, and the screen as lines |
//! | `terminal` | keys and lines on a real terminal |
//! | `live` | the loop that uses all of these, until the programs or the user end it |

mod live;
mod targets;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod watch;

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use memtrace_core::Device;
use memtrace_core::analysis::Key;
use memtrace_core::export::Text;
use memtrace_core::report::{LookOptions, Report};

use self::targets::Targets;
use self::watch::Watch;
use crate::arguments::{self, SourceArgs};
use crate::failure::CommandFailure;
use crate::{input, moment, output, ranks};

/// Show what holds memory now, while the program runs
#[derive(Args)]
#[command(
    after_help = "Rereads the recordings of running programs as they grow. Shows what is live on each device at the last commit, how much each row grew
since the last look and since the first one, and one line for each of several processes. Ends when the programs do.

Keys: q ends, s sorts by bytes, growth or count, / filters (Esc clears), space freezes, b changes what rows stand for, arrows
choose a rank, ? shows the keys.

In a pipe, or with --once, it prints one picture.

Examples:
  cargo memtrace top                       the newest recording under cargo's target folder
  cargo memtrace top ranks/                a folder: those that are still being written, or else all
  cargo memtrace top 4711                  what this process and its children record
  cargo memtrace top run.memtrace --by operator --once"
)]
pub(crate) struct TopArgs {
    /// A recording, a folder of them, or the number of a process [default: the newest recording under cargo's target folder]
    #[arg(value_name = "FILE|DIR|PID")]
    targets: Vec<PathBuf>,
    /// What the rows stand for
    #[arg(long, value_name = "KEY", default_value = "line", value_parser = arguments::key())]
    by: Key,
    /// Only this memory: cpu, cuda:0, pinned, managed
    #[arg(long, value_name = "DEVICE", value_parser = moment::device)]
    device: Option<Device>,
    /// Print one picture, with --top rows of a table
    #[arg(long)]
    once: bool,
    /// Seconds from one look to the next; longer if a look takes more than a tenth of them
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Rows of a table of one picture
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    sources: SourceArgs,
}

/// A positive number of seconds, at most a day.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.1 to 86400".to_owned())
}

pub(crate) fn run(args: &TopArgs) -> Result<(), CommandFailure> {
    let targets = Targets::of(&args.targets)?;
    let watch = Watch::of(targets, args.device, input::sources(&args.sources)?)?;
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    if args.once || !is_terminal { once(args, watch) } else { live::run(args.by, args.interval, watch) }
}

fn once(args: &TopArgs, mut watch: Watch) -> Result<(), CommandFailure> {
    let files = watch.look(&[args.by])?;
    let unread: Vec<&str> = files.iter().filter_map(|file| file.problem.as_deref()).collect();
    if let (Some(problem), true) = (unread.first(), unread.len() == files.len()) {
        return Err(CommandFailure::usage(*problem));
    }
    let width = output::width(stdout().is_terminal());
    let options = LookOptions { by: args.by, ranks: usize::MAX, rows: args.top, width, ..LookOptions::default() };
    output::print_shown(&Text { width, ..Text::default() }.show(&Report::of_looks(files, &options)))?;
    ranks::all_read(unread.len(), files.len())
}
