//! One of several ranks, for commands that read one recording.

use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_core::analysis::{RankSummary, Ranks};
use memtrace_core::report::{counted_ranks, rank_names};

use crate::arguments::SelectionArgs;
use crate::failure::CommandFailure;
use crate::ranks::{JobChoice, all_read, read};
use crate::{input, output};

/// Which rank is read.
#[derive(Args, Clone, Copy)]
pub(crate) struct RankArgs {
    /// The rank to read, of several recordings [default: the rank with the largest peak]
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// The job to read, of recordings of several jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) job: Option<u32>,
}

/// The recording that a command reads.
pub(crate) struct OneFile {
    /// `None` stands for the newest recording.
    pub(crate) path: Option<PathBuf>,
    /// The recording's rank, if it was chosen from several recordings.
    pub(crate) rank: Option<u32>,
    /// An error to return at the end of the command if a file was not read, because another rank may then be the worst.
    pub(crate) all_read: Result<(), CommandFailure>,
}

/// The named file, or the file of one rank if there are several. Says which rank it is.
pub(crate) fn one_of(
    named: &[PathBuf],
    args: RankArgs,
    selection: Option<&SelectionArgs>,
) -> Result<OneFile, CommandFailure> {
    let mut files = input::files(named)?;
    match files.len() {
        2.. => of_several(&files, args, selection),
        _ if args.rank.is_some() => {
            Err(CommandFailure::usage("--rank is for several recordings, one for each rank, or a folder of them"))
        }
        _ => Ok(OneFile { path: files.pop(), rank: None, all_read: Ok(()) }),
    }
}

fn of_several(files: &[PathBuf], args: RankArgs, selection: Option<&SelectionArgs>) -> Result<OneFile, CommandFailure> {
    let device = selection.and_then(|selection| selection.device);
    let choice = JobChoice { number: args.job, how: "--job N" };
    let found = read(files, selection, choice, &[], |recording, file| RankSummary::of(recording, file, device, &[]))?;
    let rank = match args.rank {
        Some(number) => of_number(&found, number),
        None => found.worst().ok_or_else(|| CommandFailure::usage("no rank could be read")),
    };
    let all_read = match (args.rank, &rank) {
        // The user chose a rank, and its file was read. The other files do not matter.
        (Some(_), Ok(_)) => Ok(()),
        _ => {
            output::tell(found.unread.iter().map(|unread| format!("error: {}", unread.reason)));
            all_read(found.unread.len(), files.len())
        }
    };
    let rank = rank?;
    let at = input::names_of(files).iter().position(|name| *name == rank.file);
    let path = at.and_then(|at| files.get(at)).cloned();
    let (name, count) = (rank.name(), counted_ranks(found.ranks.len()));
    let worst = if args.rank.is_none() { format!(", which has the largest peak of {count}") } else { String::new() };
    output::say(format!("reading {name}{worst}: {}", path.as_deref().unwrap_or(Path::new("")).display()));
    Ok(OneFile { path, rank: rank.process.rank, all_read })
}

fn of_number(ranks: &Ranks, number: u32) -> Result<&RankSummary, CommandFailure> {
    ranks.ranks.iter().find(|rank| rank.process.rank == Some(number)).ok_or_else(|| {
        let there = match &ranks.ranks.iter().collect::<Vec<_>>()[..] {
            [] => "no file could be read".to_owned(),
            ranks => format!("there are recordings of {}", rank_names(ranks)),
        };
        CommandFailure::usage(format!("there is no recording of rank {number}; {there}"))
    })
}
