//! `diff` of two folders: the ranks of two jobs. One recording is in memory at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use memtrace_core::analysis::{Key, Moment, RankSummary, Ranks, RanksDiff};
use memtrace_core::export::ranks_diff_json;
use memtrace_core::report::{DiffOptions, Report, rank_names};
use memtrace_core::{Device, Recording};

use super::DiffArgs;
use crate::failure::CommandFailure;
use crate::ranks::JobChoice;
use crate::{input, output, ranks};

/// The files of both folders.
pub(super) struct Folders {
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
}

/// The files to compare as ranks: those of two folders, of which one has several.
pub(super) fn folders(args: &DiffArgs) -> Result<Option<Folders>, CommandFailure> {
    if !args.before.is_dir() || !args.after.is_dir() {
        return Ok(None);
    }
    let [before, after] = [&args.before, &args.after].map(|folder| input::recordings_in(folder));
    let folders = Folders { before: before?, after: after? };
    Ok((folders.before.len() > 1 || folders.after.len() > 1).then_some(folders))
}

pub(super) fn show(args: &DiffArgs, options: &DiffOptions, folders: &Folders) -> Result<(), CommandFailure> {
    if options.before != Moment::Peak || options.after != Moment::Peak {
        return Err(CommandFailure::usage(
            "ranks are compared at their peaks; --at and --at-after are for one recording",
        ));
    }
    let diff = read(args, folders)?;
    let report = Report::of_ranks_diff(&diff, options);
    match args.selection.json {
        true => output::print_shown(&ranks_diff_json(&diff, &report)?)?,
        false => super::print(args, &report)?,
    }
    let unread = diff.before.unread.len() + diff.after.unread.len();
    ranks::all_read(unread, folders.before.len() + folders.after.len())
}

/// The ranks after come first: those before are compared on their devices.
fn read(args: &DiffArgs, folders: &Folders) -> Result<RanksDiff, CommandFailure> {
    let keys = if args.by.is_empty() { vec![Key::default()] } else { args.by.clone() };
    let job = |folder: &Path, files: &[PathBuf], job: JobChoice, devices: &HashMap<u32, Device>| {
        let ranks = ranks::read(files, Some(&args.selection), job, &keys, |recording, file| {
            let device = args.selection.device.or_else(|| device_of(recording, file, devices));
            RankSummary::of_side(recording, file, device, &keys)
        });
        ranks.map_err(|failure| CommandFailure::usage(format!("{}: {failure}", folder.display()))).and_then(numbered)
    };
    let (number, how) = (args.job_after.or(args.job), "--job-after N");
    let after = job(&args.after, &folders.after, JobChoice { number, how }, &HashMap::new())?;
    let device = |rank: &RankSummary| Some((rank.process.rank?, rank.peak.as_ref()?.device));
    let devices = after.ranks.iter().filter_map(device).collect();
    let choice = JobChoice { number: args.job, how: "--job N" };
    let before = job(&args.before, &folders.before, choice, &devices)?;
    Ok(RanksDiff { before, after })
}

/// The device of the rank after, if the recording has it: else its main one.
fn device_of(recording: &Recording<'_>, file: &str, devices: &HashMap<u32, Device>) -> Option<Device> {
    let device = *devices.get(&RankSummary::rank_of(recording, file)?)?;
    recording.device(device).map(|_| device)
}

/// A recording without a rank has no partner.
fn numbered(ranks: Ranks) -> Result<Ranks, CommandFailure> {
    let without: Vec<&RankSummary> = ranks.ranks.iter().filter(|rank| rank.process.rank.is_none()).collect();
    match without.is_empty() {
        true => Ok(ranks),
        false => Err(CommandFailure::usage(format!(
            "ranks are paired by number, and no rank is known of {}; put it into the file's name, such as rank3.memtrace",
            rank_names(&without)
        ))),
    }
}
