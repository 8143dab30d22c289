//! `report`: the answer and tables. `advise`, `leaks` and `temporaries` print parts of it. For several files, or a
//! folder of them, it compares the ranks.

mod ranks;

use clap::Args;
use memtrace_core::analysis::{Key, Moment};
use memtrace_core::report::{Report, ReportOptions};

use crate::arguments::{self, RanksArgs, ReadingArgs, SelectionArgs};
use crate::failure::CommandFailure;
use crate::progress::Progress;
use crate::{input, moment, output};

/// Print the answer, then tables: by line, function, operator, category, scope …
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace report
  cargo memtrace report run.memtrace --by line,operator --top 5
  cargo memtrace report --at step:3
  cargo memtrace report --at scope:forward --by line
  cargo memtrace report ranks/                  compares the ranks of a job: a file each

Several files, or a folder with several, are ranks of a job: the one with the largest peak, the one with the least headroom, and
how evenly each line is spread. Files of several jobs are not added up: --job chooses one.")]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Tables to print
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = arguments::key())]
    by: Vec<Key>,
    /// The moment: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = moment::parse)]
    at: Moment,
    #[command(flatten)]
    ranks: RanksArgs,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), CommandFailure> {
    let mut files = input::files(&args.ranks.files)?;
    if files.len() > 1 {
        return ranks::show(args, &files);
    }
    let sections = args.by.iter().map(|by| by.section().to_owned()).collect();
    let reading = ReadingArgs { file: files.pop(), selection: args.selection.clone() };
    show(&reading, args.at.clone(), sections, |_| {})
}

/// Prints a report that may have been reduced to some parts.
pub(super) fn show(
    reading: &ReadingArgs,
    moment: Moment,
    sections: Vec<String>,
    leave: impl FnOnce(&mut Report),
) -> Result<(), CommandFailure> {
    let ReadingArgs { file, selection } = reading;
    let recording = input::read_selected(file.as_deref(), selection)?;
    let options = ReportOptions { device: selection.device, rows: selection.top, sections, moment };
    let progress = Progress::of("computing the report");
    let mut report = Report::of(&recording.data, &options)?;
    drop(progress);
    report.notes.splice(0..0, recording.notes);
    leave(&mut report);
    output::print(&report, Some((&recording.data, &options)), selection)
}
