//! `report` of several files: each is the recording of a rank. One is in memory at a time.

use std::collections::HashSet;
use std::path::PathBuf;

use memtrace_core::Recording;
use memtrace_core::analysis::{Key, Moment, RankSummary, Ranks, UnreadFile, jobs};
use memtrace_core::export::ranks_json;
use memtrace_core::report::Report;

use super::ReportArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

/// Jobs that an error lists.
const MOST_JOBS: usize = 8;

pub(super) fn show(args: &ReportArgs, files: &[PathBuf]) -> Result<(), CommandFailure> {
    if args.at != Moment::Peak {
        return Err(CommandFailure::usage("ranks are compared at their peaks; --at is for one recording"));
    }
    let keys = if args.by.is_empty() { vec![Key::default()] } else { args.by.clone() };
    let (summaries, unread) = read(args, files, &keys);
    let ranks = Ranks::of(of_one_job(summaries, args.job)?, keys, unread);
    let report = Report::of_ranks(&ranks, args.selection.top);
    match args.selection.json {
        true => output::print_shown(&ranks_json(&ranks, &report)?)?,
        false => output::print(&report, None, &args.selection)?,
    }
    // The rest is printed, but a script must not take it for the whole.
    match ranks.unread.len() {
        0 => Ok(()),
        unread => Err(CommandFailure::usage(format!("{unread} of {} files could not be read", files.len()))),
    }
}

fn read(args: &ReportArgs, files: &[PathBuf], keys: &[Key]) -> (Vec<RankSummary>, Vec<UnreadFile>) {
    let (mut summaries, mut unread) = (Vec::new(), Vec::new());
    for (path, file) in files.iter().zip(input::names_of(files)) {
        match input::read_one_of_several(path, &args.selection) {
            Ok(recording) => {
                let views = Recording::new(&recording.data);
                summaries.push(RankSummary::of(&views, &file, args.selection.device, keys));
            }
            Err(failure) => unread.push(UnreadFile { file, reason: failure.to_string() }),
        }
    }
    (summaries, unread)
}

/// The recordings of the chosen job, or of the only one.
fn of_one_job(summaries: Vec<RankSummary>, chosen: Option<u32>) -> Result<Vec<RankSummary>, CommandFailure> {
    let jobs = jobs(&summaries);
    let at = match chosen {
        None if jobs.len() > 1 => {
            let all = listed(&summaries, &jobs);
            let next = "choose one with --job N, or name its files";
            return Err(CommandFailure::usage(format!("these are recordings of {} jobs: {all}; {next}", jobs.len())));
        }
        chosen => chosen.map_or(0, |number| number as usize - 1),
    };
    let job: HashSet<usize> = match jobs.get(at) {
        Some(job) => job.iter().copied().collect(),
        None if chosen.is_none() => HashSet::new(),
        None => return Err(CommandFailure::usage(format!("there is no job {}: there are {}", at + 1, jobs.len()))),
    };
    Ok(summaries.into_iter().enumerate().filter(|(at, _)| job.contains(at)).map(|(_, summary)| summary).collect())
}

/// `1 (train, 8 files from rank0.memtrace on), 2 (…)`
fn listed(summaries: &[RankSummary], jobs: &[Vec<usize>]) -> String {
    let first_began = summaries.iter().filter(|one| one.has_process()).map(|one| one.process.started_unix_us).min();
    let job = |(job, number): (&Vec<usize>, u32)| {
        let Some(first) = job.first().and_then(|at| summaries.get(*at)) else { return String::new() };
        let files = match job.len() {
            1 => first.file.clone(),
            count => format!("{count} files from {} on", first.file),
        };
        let began =
            first_began.filter(|_| first.has_process()).map_or(0, |began| first.process.started_unix_us - began);
        let later = if began < 1_000_000 { String::new() } else { format!(", {} s later", began / 1_000_000) };
        format!("{number} ({}, {files}{later})", first.process.program)
    };
    let mut all: Vec<String> = jobs.iter().zip(1..).take(MOST_JOBS).map(job).collect();
    if jobs.len() > MOST_JOBS {
        all.push(format!("{} more", jobs.len() - MOST_JOBS));
    }
    all.join(", ")
}
