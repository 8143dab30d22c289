//! Which recordings are ranks of the same job. Files of two jobs in one folder must not be added up, so a recording
//! joins a job only if all of these hold:
//!
//! 1. its program has the same name;
//! 2. the launchers' job ids are equal, and so are the numbers of ranks, if both sides have them;
//! 3. it began at most [`SPREAD_US`] after the job's first recording;
//! 4. if it has a rank, the job has no other process of this rank. An earlier process does not count if it became
//!    this one by `exec`, so that its recording has no end mark;
//! 5. if it has no rank, it began before the last process of the job ended.
//!
//! Equal ids are no proof, because launchers reuse ids. Of all this, a PyTorch snapshot contains only the program.

use std::collections::HashMap;

use super::summary::RankSummary;
use crate::numbered::Numbered;
use crate::snapshot::{Launcher, Process};

/// The ranks of a job begin within a minute.
const SPREAD_US: u64 = 60_000_000;

/// The clocks of two hosts are assumed to differ by less than this.
const CLOCKS_US: u64 = 5_000_000;

/// The jobs, in the order in which they began. Each is a list of positions in `all`, in order. PyTorch snapshots join
/// the job of the other recordings only if there is one such job, and all snapshots are of one program. Otherwise the
/// snapshots of each program form a job of their own.
pub fn jobs(all: &[RankSummary]) -> Vec<Vec<usize>> {
    let (processes, snapshots): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(|at| all[*at].has_process());
    let (mut jobs, by_program) = (of_processes(all, processes), of_programs(all, snapshots));
    match (&mut jobs[..], &by_program[..]) {
        ([job], [snapshots]) => job.extend(snapshots),
        _ => jobs.extend(by_program),
    }
    jobs.iter_mut().for_each(|job| job.sort_unstable());
    jobs
}

/// The only job with ranks. `None` if there is no such job, or if other jobs have more than processes without a rank
/// that ran at the same time: the launcher, and what it starts besides the ranks.
pub fn job_with_ranks(all: &[RankSummary], jobs: &[Vec<usize>]) -> Option<usize> {
    let members = |job: &Vec<usize>| job.iter().filter_map(|at| all.get(*at)).collect::<Vec<_>>();
    let has_ranks = |job: &Vec<usize>| members(job).iter().any(|one| one.process.rank.is_some());
    let (at, job) = jobs.iter().enumerate().find(|(_, job)| has_ranks(job))?;
    let ranks = members(job);
    let others = || jobs.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, job)| members(job));
    let is_beside = |one: &RankSummary| {
        one.process.rank.is_none() && one.has_process() && ranks.iter().any(|rank| ran_together(one, rank))
    };
    others().all(is_beside).then_some(at)
}

fn ran_together(one: &RankSummary, other: &RankSummary) -> bool {
    let slack = if one.process.host == other.process.host { 0 } else { CLOCKS_US };
    let began_before_end = |one: &RankSummary, other: &RankSummary| {
        one.process.started_unix_us <= other.ended_unix_us().saturating_add(slack)
    };
    began_before_end(one, other) && began_before_end(other, one)
}

fn of_programs(all: &[RankSummary], snapshots: Vec<usize>) -> Vec<Vec<usize>> {
    let mut jobs: Numbered<&str, Vec<usize>> = Numbered::default();
    snapshots.into_iter().for_each(|at| jobs.update(&all[at].process.program, |job| job.push(at)));
    jobs.rows().iter().map(|(_, job)| job.clone()).collect()
}

fn of_processes(all: &[RankSummary], mut processes: Vec<usize>) -> Vec<Vec<usize>> {
    processes.sort_by_key(|at| (all[*at].process.started_unix_us, &all[*at].file));
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for at in processes {
        let began = all[at].process.started_unix_us;
        let recent = jobs.iter_mut().rev().take_while(|job| began - job.began <= SPREAD_US);
        match recent.into_iter().find(|job| job.takes(&all[at])) {
            Some(job) => job.add(at, &all[at]),
            None => jobs.push(Job::of(at, &all[at])),
        }
    }
    jobs.into_iter().map(|job| job.members).collect()
}

/// A job whose processes are still being collected, in the order in which they began.
struct Job<'a> {
    members: Vec<usize>,
    began: u64,
    program: &'a str,
    launcher: Launcher,
    ranks: HashMap<u32, &'a RankSummary>,
    /// When the last process of each host ended.
    ended: HashMap<&'a str, u64>,
}

impl<'a> Job<'a> {
    fn of(at: usize, first: &'a RankSummary) -> Self {
        let (began, program) = (first.process.started_unix_us, &*first.process.program);
        let (ranks, ended) = (HashMap::new(), HashMap::new());
        let mut job = Self { members: Vec::new(), began, program, launcher: Launcher::default(), ranks, ended };
        job.add(at, first);
        job
    }

    fn takes(&self, other: &RankSummary) -> bool {
        let (process, launcher) = (&other.process, &other.process.launcher);
        self.program == process.program
            && is_no_other(&self.launcher.job, &launcher.job)
            && is_no_other(&self.launcher.world_size, &launcher.world_size)
            && match process.rank {
                Some(rank) => {
                    self.ranks.get(&rank).is_none_or(|same| same.is_same_process(other) || same.became(other))
                }
                None => self.ran_at(other),
            }
    }

    /// Whether a process of the job was still running when the process of `other` began.
    fn ran_at(&self, other: &RankSummary) -> bool {
        let Process { host, started_unix_us, .. } = &other.process;
        let on = |(of, ended): (&&str, &u64)| {
            let slack = if *of == host { 0 } else { CLOCKS_US };
            *started_unix_us <= ended.saturating_add(slack)
        };
        self.ended.iter().any(on)
    }

    fn add(&mut self, at: usize, other: &'a RankSummary) {
        self.members.push(at);
        let Launcher { world_size, job } = &other.process.launcher;
        self.launcher.world_size = self.launcher.world_size.or(*world_size);
        self.launcher.job = self.launcher.job.take().or_else(|| job.clone());
        self.ranks.extend(other.process.rank.map(|rank| (rank, other)));
        let ended = self.ended.entry(&other.process.host).or_default();
        *ended = other.ended_unix_us().max(*ended);
    }
}

fn is_no_other<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}
