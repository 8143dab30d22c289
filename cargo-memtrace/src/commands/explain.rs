//! `explain`: one line, function, operator or address.

use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_core::analysis::Subject;
use memtrace_core::report::{Report, ReportOptions};

use crate::arguments::SelectionArgs;
use crate::failure::CommandFailure;
use crate::one_rank::{RankArgs, one_of};
use crate::{called, input, output};

/// Print all blocks of a line or operator, or the life of one block
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace explain src/train.rs:32
  cargo memtrace explain run.memtrace matmul
  cargo memtrace explain 0x7f3a94000000
  cargo memtrace explain ranks/ src/train.rs:32 --rank 3      of a folder one rank, or the one with the largest peak")]
pub(crate) struct ExplainArgs {
    /// A line (train.rs:32), a function, an operator (matmul) or an address (0x7f…), and the recording, in any order
    #[arg(required = true, num_args = 1..=2, value_name = "[FILE] SUBJECT")]
    what: Vec<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    rank: RankArgs,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), CommandFailure> {
    let (file, subject) = file_and_subject(&args.what)?;
    let subject = subject.to_string_lossy();
    let one = one_of(file, args.rank, Some(&args.selection))?;
    let recording = input::read_selected(one.path.as_deref(), &args.selection)?;
    let options = ReportOptions { device: args.selection.device, rows: args.selection.top, ..ReportOptions::default() };
    let report = Report::of_subject(&recording.data, &Subject::parse(&subject), &options).ok_or_else(|| {
        let known = format!("`{} report --by line,operator,function` lists what there is", called::name());
        CommandFailure::usage(format!("no block of {} belongs to {subject:?}; {known}", recording.path.display()))
    })?;
    output::print(&report, None, &args.selection)?;
    one.all_read
}

/// In either order, because other commands take the recording first, and this one without it.
fn file_and_subject(what: &[PathBuf]) -> Result<(Option<&Path>, &Path), CommandFailure> {
    match what {
        [first, second] if !first.exists() && second.exists() => Ok((Some(second), first)),
        [file, subject] if file.exists() => Ok((Some(file), subject)),
        [first, second] => {
            let (first, second) = (first.display(), second.display());
            Err(CommandFailure::usage(format!(
                "No such file: {first}, and {second} is none either; name the recording and its line"
            )))
        }
        [file] if file.is_file() && memtrace_core::is_capture(file) => {
            let file = file.display();
            Err(CommandFailure::usage(format!("name a line, a function, an operator or an address beside {file}")))
        }
        [subject] => Ok((None, subject)),
        _ => Err(CommandFailure::usage("name a line, a function, an operator or an address")),
    }
}
