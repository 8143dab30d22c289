//! `growth`: what holds more and more memory. Exit code 0 if nothing grows, 1 if something does, 3 if this is
//! undecided. Several files or a folder are ranks; one recording is in memory at a time.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_core::Recording;
use memtrace_core::analysis::{Growth, Key, RankSummary};
use memtrace_core::export::growth_json;
use memtrace_core::report::{Report, growth_answer, growth_section};

use crate::arguments::{self, SelectionArgs};
use crate::failure::CommandFailure;
use crate::input::{self, RecordingFile};
use crate::output;

/// Print what keeps growing, how fast, and when the device will be full
#[derive(Args)]
#[command(
    after_help = "The time of the log is divided into 16 intervals, of which the first 4 are the warm-up. A row grows if the least that it
holds rises with every interval after the warm-up. A cache that is full does not, nor does a queue. docs/growth.md has more.

Exit codes: 0 nothing grows, 1 something does, 2 wrong use or unreadable input, 3 undecided.

Examples:
  cargo memtrace growth
  cargo memtrace growth service.memtrace --by scope
  cargo memtrace growth ranks/                  each rank, the fastest growth first"
)]
pub(crate) struct GrowthArgs {
    /// The recording [default: the newest one under cargo's target folder]; several, or a folder of them, are ranks
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the rows stand for
    #[arg(long, value_name = "KEY", default_value = "line", value_parser = arguments::key_over_time())]
    by: Key,
    #[command(flatten)]
    selection: SelectionArgs,
}

/// What grows in a recording.
struct FileGrowth {
    /// Its rank or file; empty for a single recording.
    name: String,
    growth: Growth,
    /// Notes on what a time window left out.
    notes: Vec<String>,
}

impl FileGrowth {
    /// The prefix of a line, such as `rank 3: `.
    fn prefix(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) }
    }

    /// Sorts the fastest growth first, then undecided rows.
    fn order(&self) -> impl Ord + use<> {
        Reverse((self.growth.grows() == Some(true), self.growth.per_minute(), self.growth.grows().is_none()))
    }
}

pub(crate) fn run(args: &GrowthArgs) -> Result<(), CommandFailure> {
    let files = input::files(&args.files)?;
    let (all, unread) = match &files[..] {
        [] | [_] => (vec![of_one(args, files.first())?], Vec::new()),
        _ => of_several(args, &files),
    };
    print(args, &all)?;
    output::tell(unread.iter().map(|reason| format!("error: {reason}")));
    verdict(&all, unread.len())
}

fn verdict(all: &[FileGrowth], unread: usize) -> Result<(), CommandFailure> {
    let names = |grows| {
        let of: Vec<&FileGrowth> = all.iter().filter(|file| file.growth.grows() == grows).collect();
        let names: Vec<&str> = of.iter().map(|file| &*file.name).filter(|name| !name.is_empty()).collect();
        let names = if names.is_empty() { String::new() } else { format!(" in {}", names.join(", ")) };
        (!of.is_empty()).then_some(names)
    };
    match (names(Some(true)), unread, names(None)) {
        (Some(names), ..) => Err(CommandFailure::Check(vec![format!("memory grows{names}")])),
        (None, 1.., _) => {
            let count = all.len() + unread;
            Err(CommandFailure::usage(format!("{unread} of {count} files could not be judged")))
        }
        (None, 0, Some(names)) => Err(CommandFailure::Undecided(vec![format!("whether memory grows{names}")])),
        (None, 0, None) => Ok(()),
    }
}

fn of_one(args: &GrowthArgs, file: Option<&PathBuf>) -> Result<FileGrowth, CommandFailure> {
    let recording = input::read_selected(file.map(PathBuf::as_path), &args.selection)?;
    growth_of(args, recording, String::new())
}

fn growth_of(args: &GrowthArgs, recording: RecordingFile, name: String) -> Result<FileGrowth, CommandFailure> {
    let views = Recording::new(&recording.data);
    let growth = views.device_or_main(args.selection.device).map(|device| Growth::of(device, args.by));
    let nothing = match args.selection.device {
        Some(device) => format!("nothing was recorded on {device}"),
        None => "nothing was recorded".to_owned(),
    };
    growth.map(|growth| FileGrowth { name, growth, notes: recording.notes }).ok_or(CommandFailure::Use(nothing))
}

/// The recordings, the fastest growth first, and the reasons why other files were not judged.
fn of_several(args: &GrowthArgs, files: &[PathBuf]) -> (Vec<FileGrowth>, Vec<String>) {
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for (path, file) in files.iter().zip(input::names_of(files)) {
        match one_of_several(args, path, &file) {
            Ok(found) => all.push(found),
            Err(failure) => unread.push(format!("{file}: {failure}")),
        }
    }
    all.sort_by_key(FileGrowth::order);
    (all, unread)
}

fn one_of_several(args: &GrowthArgs, path: &Path, file: &str) -> Result<FileGrowth, CommandFailure> {
    let recording = input::read_one_of_several(path, Some(&args.selection))?;
    let name = RankSummary::of(&Recording::new(&recording.data), file, None, &[]).name();
    growth_of(args, recording, name)
}

fn print(args: &GrowthArgs, all: &[FileGrowth]) -> Result<(), CommandFailure> {
    if args.selection.json {
        return output::print_shown(&growth_json(all.iter().map(|file| (&*file.name, &file.growth)))?);
    }
    let mut report = Report::default();
    for file in all {
        let with_name = |line: String| file.prefix() + &line;
        report.answer.extend(growth_answer(&file.growth).into_iter().map(with_name));
        report.notes.extend(file.notes.iter().cloned().map(with_name));
        if !file.growth.rows.is_empty() {
            let mut section = growth_section(&file.growth, args.selection.top);
            section.title.insert_str(0, &file.prefix());
            report.sections.push(section);
        }
    }
    output::print(&report, None, &args.selection)
}
