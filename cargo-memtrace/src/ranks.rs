//! Several recordings as the ranks of a job. Each recording is read, reduced to a summary, and dropped before the next
//! one is read.

use std::collections::HashSet;
use std::path::PathBuf;

use memtrace_core::Recording;
use memtrace_core::analysis::{Key, RankSummary, Ranks, UnreadFile, job_with_ranks, jobs};

use crate::arguments::{RanksArgs, SelectionArgs};
use crate::failure::CommandFailure;
use crate::{input, output};

/// The most jobs that an error lists.
const MOST_JOBS: usize = 8;

/// Which of several jobs is read.
#[derive(Clone, Copy)]
pub(crate) struct JobChoice {
    pub(crate) number: Option<u32>,
    /// How a user chooses a job, as text after "choose one with".
    pub(crate) how: &'static str,
}

impl JobChoice {
    /// The choice of a command that takes files.
    pub(crate) fn of(args: &RanksArgs) -> Self {
        Self { number: args.job, how: "--job N, or name its files" }
    }
}

/// Reads the files as the ranks of the chosen job, or of the only one. `reduce` gets each recording with its file's
/// name.
pub(crate) fn read(
    files: &[PathBuf],
    selection: Option<&SelectionArgs>,
    job: JobChoice,
    keys: &[Key],
    mut reduce: impl FnMut(&Recording<'_>, &str) -> RankSummary,
) -> Result<Ranks, CommandFailure> {
    let (mut summaries, mut unread) = (Vec::new(), Vec::new());
    for (path, file) in files.iter().zip(input::names_of(files)) {
        match input::read_one_of_several(path, selection) {
            Ok(recording) => summaries.push(reduce(&Recording::new(&recording.data), &file)),
            Err(failure) => unread.push(UnreadFile { file, reason: failure.to_string() }),
        }
    }
    Ok(Ranks::of(of_one_job(summaries, job)?, keys.to_vec(), unread))
}

/// An error if a file was not read. The result for the other files is printed, but a script must not mistake it for the
/// result for all.
pub(crate) fn all_read(unread: usize, files: usize) -> Result<(), CommandFailure> {
    match unread {
        0 => Ok(()),
        unread => Err(CommandFailure::usage(format!("{unread} of {files} files could not be read"))),
    }
}

/// The recordings of the chosen job, or of the only one.
fn of_one_job(summaries: Vec<RankSummary>, chosen: JobChoice) -> Result<Vec<RankSummary>, CommandFailure> {
    let jobs = jobs(&summaries);
    let at = match (chosen.number, job_with_ranks(&summaries, &jobs)) {
        (None, Some(at)) => {
            say_what_is_beside(&summaries, &jobs, at);
            at
        }
        (None, None) if jobs.len() > 1 => {
            let all = listed(&summaries, &jobs);
            let (count, how) = (jobs.len(), chosen.how);
            return Err(CommandFailure::usage(format!(
                "these are recordings of {count} jobs: {all}; choose one with {how}"
            )));
        }
        (number, _) => number.map_or(0, |number| number as usize - 1),
    };
    let job: HashSet<usize> = match jobs.get(at) {
        Some(job) => job.iter().copied().collect(),
        None if chosen.number.is_none() => HashSet::new(),
        None => return Err(CommandFailure::usage(format!("there is no job {}: there are {}", at + 1, jobs.len()))),
    };
    Ok(summaries.into_iter().enumerate().filter(|(at, _)| job.contains(at)).map(|(_, summary)| summary).collect())
}

/// Says which recordings are left out because they do not belong to the chosen job.
fn say_what_is_beside(summaries: &[RankSummary], jobs: &[Vec<usize>], chosen: usize) {
    for (job, number) in jobs.iter().zip(1..).filter(|(_, number)| *number != chosen + 1) {
        for one in job.iter().filter_map(|at| summaries.get(*at)) {
            let (file, program) = (&one.file, &one.process.program);
            output::say(format!("left out: {file} of {program}, which ran beside the ranks (--job {number} reads it)"));
        }
    }
}

/// The jobs as text, for instance `1 (train, 8 files from rank0.memtrace on), 2 (…)`.
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
