//! `explain`: one line, function, operator or address.

use std::path::PathBuf;

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
  cargo memtrace explain ranks/ src/train.rs:32 --rank 3      one rank of several, or the one with the largest peak")]
pub(crate) struct ExplainArgs {
    /// A line (train.rs:32), a function, an operator (matmul) or an address (0x7f…), first or last; the others are the
    /// recording, those of several ranks, or their folder
    #[arg(required = true, num_args = 1.., value_name = "SUBJECT|FILE")]
    what: Vec<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    rank: RankArgs,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), CommandFailure> {
    let (files, subject) = files_and_subject(&args.what)?;
    let subject = subject.to_string_lossy();
    let one = one_of(&files, args.rank, Some(&args.selection))?;
    let recording = input::read_selected(one.path.as_deref(), &args.selection)?;
    let options = ReportOptions { device: args.selection.device, rows: args.selection.top, ..ReportOptions::default() };
    let report = Report::of_subject(&recording.data, &Subject::parse(&subject), &options).ok_or_else(|| {
        let known = format!("`{} report --by line,operator,function` lists what there is", called::name());
        CommandFailure::usage(format!("no block of {} belongs to {subject:?}; {known}", recording.path.display()))
    })?;
    output::print(&report, None, &args.selection)?;
    one.all_read
}

/// Separates the recordings from the subject, such as a line. Accepts any order, because other commands take the
/// recording first, and this command may go without a recording. The argument that is no file is the subject.
fn files_and_subject(what: &[PathBuf]) -> Result<(Vec<PathBuf>, PathBuf), CommandFailure> {
    let (mut files, mut lines): (Vec<PathBuf>, Vec<PathBuf>) = what.iter().cloned().partition(|path| path.exists());
    match (lines.pop(), &lines[..]) {
        (Some(line), []) => Ok((files, line)),
        (Some(last), others) => {
            let all: Vec<String> = others.iter().chain([&last]).map(|path| path.display().to_string()).collect();
            Err(CommandFailure::usage(format!("No such file: {}; only one of them can be the line", all.join(", "))))
        }
        // Every argument names a file, so a file has the same name as the subject.
        (None, _) => match files.pop() {
            Some(line) if !memtrace_core::is_capture(&line) && (line.is_file() || !files.is_empty()) => {
                Ok((files, line))
            }
            _ => Err(CommandFailure::usage("name a line, a function, an operator or an address beside the recording")),
        },
    }
}
