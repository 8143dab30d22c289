//! Which recordings are ranks of one job. Files of two jobs in one folder must not be added up, so a recording joins a job
//! only if nothing speaks against it:
//!
//! 1. the program has the same name;
//! 2. the launchers' ids of the job are equal, and the numbers of ranks, where both are known;
//! 3. it began at most [`SPREAD_US`] after the job's first;
//! 4. the job has no other process of this rank, but for one that became another program and whose recording has no end therefore;
//! 5. without a rank, it ran while another process of the job did.
//!
//! Equal ids prove nothing: launchers use an id again. A PyTorch snapshot says of none of this but the program.

use std::collections::HashMap;

use super::summary::RankSummary;
use crate::snapshot::{Launcher, Process};

/// Ranks of one job begin within a minute.
const SPREAD_US: u64 = 60_000_000;

/// Clocks of hosts differ by less.
const CLOCKS_US: u64 = 5_000_000;

/// The jobs, the first that began first; each as positions in the list, in the order of the list. PyTorch snapshots are jobs of
/// their own beside several others.
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

/// The only job with ranks, if all others are processes without a rank that ran at the same time: the launcher, and what it
/// starts beside the ranks.
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
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for at in snapshots {
        let job = *known.entry(&all[at].process.program).or_insert(jobs.len());
        jobs.resize(jobs.len().max(job + 1), Vec::new());
        jobs[job].push(at);
    }
    jobs
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

/// A job whose processes are being found, in the order in which they began.
struct Job<'a> {
    members: Vec<usize>,
    began: u64,
    program: &'a str,
    launcher: Launcher,
    /// The process of each rank.
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

    /// Whether a process of the job had not ended yet when this one began.
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
