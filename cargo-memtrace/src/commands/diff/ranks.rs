//! `diff` of the ranks of two jobs. One recording is in memory at a time.

use std::collections::HashMap;

use memtrace_core::analysis::{Key, Moment, RankSummary, Ranks, RanksDiff};
use memtrace_core::export::ranks_diff_json;
use memtrace_core::report::{DiffOptions, Report, rank_names};
use memtrace_core::{Device, Recording};

use super::{DiffArgs, Side};
use crate::failure::CommandFailure;
use crate::ranks::JobChoice;
use crate::{output, ranks};

pub(super) fn show(args: &DiffArgs, options: &DiffOptions, sides: &[Side; 2]) -> Result<(), CommandFailure> {
    if options.before != Moment::Peak || options.after != Moment::Peak {
        return Err(CommandFailure::usage(
            "ranks are compared at their peaks; --at and --at-after are for one recording",
        ));
    }
    let diff = read(args, sides)?;
    let report = Report::of_ranks_diff(&diff, options);
    match args.selection.json {
        true => output::print_shown(&ranks_diff_json(&diff, &report)?)?,
        false => super::print(args, &report)?,
    }
    let unread = diff.before.unread.len() + diff.after.unread.len();
    ranks::all_read(unread, sides.iter().map(|side| side.files.len()).sum())
}

/// Reads the ranks after the change first, because each rank before the change is compared on the device that it has
/// after the change.
fn read(args: &DiffArgs, sides: &[Side; 2]) -> Result<RanksDiff, CommandFailure> {
    let keys = if args.by.is_empty() { vec![Key::default()] } else { args.by.clone() };
    let job = |Side { name, files }: &Side, job: JobChoice, devices: &HashMap<u32, Device>| {
        let ranks = ranks::read(files, Some(&args.selection), job, &keys, |recording, file| {
            let device = args.selection.device.or_else(|| device_of(recording, file, devices));
            RankSummary::of_side(recording, file, device, &keys)
        });
        ranks.map_err(|failure| CommandFailure::usage(format!("{name}: {failure}"))).and_then(numbered)
    };
    let [before, after] = sides;
    let (number, how) = (args.job_after.or(args.job), "--job-after N");
    let after = job(after, JobChoice { number, how }, &HashMap::new())?;
    let device = |rank: &RankSummary| Some((rank.process.rank?, rank.peak.as_ref()?.device));
    let devices = after.ranks.iter().filter_map(device).collect();
    let choice = JobChoice { number: args.job, how: "--job N" };
    let before = job(before, choice, &devices)?;
    Ok(RanksDiff { before, after })
}

/// The device that the rank has after the change, if this recording has it; otherwise the recording's main one is used.
fn device_of(recording: &Recording<'_>, file: &str, devices: &HashMap<u32, Device>) -> Option<Device> {
    let device = *devices.get(&RankSummary::rank_of(recording, file)?)?;
    recording.device(device).map(|_| device)
}

/// An error if a recording has no rank, because such a recording has no partner on the other side.
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
