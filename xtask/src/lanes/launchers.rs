//! The lane `launchers`: real launchers start `xtask/launchers/rank.c`, a program whose memory in each rank is known.

mod slurm;

use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use self::slurm::Slurm;
use crate::checks::Checks;
use crate::lane::{Run, both_streams, output};
use crate::programs::Programs;

/// Debian's packages.
const PACKAGES: [&str; 6] = ["openmpi-bin", "mpich", "slurm-client", "slurmctld", "slurmd", "python3-torch"];
const RANKS: usize = 4;
/// The arguments of each launcher; the number of ranks follows them.
const LAUNCHERS: [(&str, &str, &[&str]); 4] = [
    ("Open MPI", "OMPI_COMM_WORLD_RANK", &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"]),
    ("MPICH", "PMI_RANK", &["mpirun.mpich", "-n"]),
    ("srun", "SLURM_PROCID", &["srun", "--overcommit", "--kill-on-bad-exit", "--quiet", "-n"]),
    ("torchrun", "RANK", TORCHRUN),
];
/// Only errors of each rank are shown. PyTorch 1.13's other options for output fail with Python 3.11.
const TORCHRUN: &[&str] = &["torchrun", "--no_python", "--redirects", EACH, "--tee", EACH, "--nproc_per_node"];
const EACH: &str = "0:2,1:2,2:2,3:2";

/// Data that the checks share.
struct Trial<'a> {
    run: &'a Run,
    /// The current folder of all programs.
    folder: PathBuf,
    tool: PathBuf,
    preload: PathBuf,
    checks: Checks,
}

pub(crate) fn run(run: &Run) -> Result<String> {
    if cmd!(run.shell, "id -u").read()? != "0" {
        return Ok("NOT RUN: only root installs the launchers and runs Slurm".to_owned());
    }
    cmd!(run.shell, "apt-get install --yes --quiet --quiet --no-install-recommends {PACKAGES...}").run()?;
    let built = Programs::built_by(cmd!(run.shell, "cargo build --package cargo-memtrace"))?;
    cmd!(run.shell, "cargo build --quiet --package memtrace-preload").run()?;
    let folder = run.scratch("launchers")?;
    cmd!(run.shell, "cc -g -O0 -o {folder}/rank xtask/launchers/rank.c").run()?;
    let _cluster = Slurm::started(run, &folder)?;
    let preload = run.target.join("debug/libmemtrace_preload.so");
    let tool = built.path("cargo-memtrace")?.to_owned();
    let mut trial = Trial { run, folder, tool, preload, checks: Checks::default() };
    let _inside = run.shell.push_dir(&trial.folder);
    LAUNCHERS.into_iter().try_for_each(|(name, variable, words)| trial.launcher(name, variable, words))?;
    trial.nested()?;
    trial.named()?;
    trial.checks.end()
}

impl Trial<'_> {
    fn launcher(&mut self, name: &str, variable: &str, words: &[&str]) -> Result<()> {
        let ended = self.recorded(words, &[variable])?;
        self.checks.exit(name, ended.status, ended.status.success(), &both_streams(&ended));
        self.all_are_right(name)?;
        self.one_is_missing(name)?;
        self.with_the_launcher(name, variable, words)?;
        self.two_jobs(name, variable, words)?;
        self.one_fails(name, variable, words)
    }

    /// Starts the ranks with the launcher, each by `cargo memtrace run`, after removing all recordings.
    fn recorded(&self, words: &[&str], arguments: &[&str]) -> Result<Output> {
        self.run.shell.remove_path("target")?;
        self.again(words, arguments)
    }

    fn again(&self, words: &[&str], arguments: &[&str]) -> Result<Output> {
        let tool = &self.tool;
        output(self.launched(words).arg(tool).args(["memtrace", "run", "--exec", "./rank", "--"]).args(arguments))
    }

    fn launched(&self, words: &[&str]) -> Cmd<'_> {
        self.run.shell.cmd("timeout").arg("120").args(words).arg(RANKS.to_string())
    }

    /// The report of all recordings, and its exit code.
    fn report(&self) -> Result<(String, Option<i32>)> {
        let tool = &self.tool;
        let output = output(cmd!(self.run.shell, "{tool} memtrace report target/memtrace"))?;
        Ok((both_streams(&output), output.status.code()))
    }

    fn all_are_right(&mut self, name: &str) -> Result<()> {
        let (report, _) = self.report()?;
        self.checks.says(name, &report, &format!("All {RANKS} ranks that the launcher started are here."));
        for rank in 0..RANKS {
            let has_its_size = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first() == Some(&&*rank.to_string())
                    && words.get(4..6) == Some(&[&*format!("{}.000", rank + 1), "MiB"])
            };
            self.checks.line(name, &report, &format!("of rank {rank} with {} MiB", rank + 1), has_its_size);
        }
        Ok(())
    }

    fn one_is_missing(&mut self, name: &str) -> Result<()> {
        let last = RANKS - 1;
        let (tool, recordings) = (&self.tool, self.run.shell.read_dir("target/memtrace")?);
        let is_last = |file: &PathBuf| {
            let report = cmd!(self.run.shell, "{tool} memtrace report {file}").quiet().read();
            report.is_ok_and(|report| report.contains(&format!("this is rank {last} of {RANKS}")))
        };
        let file = recordings.into_iter().find(is_last).context("no recording of the last rank")?;
        self.run.shell.remove_path(file)?;
        let (report, _) = self.report()?;
        self.checks.says(name, &report, &format!("Rank {last} has no recording here."));
        Ok(())
    }

    /// Records the launcher, and with it all processes that it starts.
    fn with_the_launcher(&mut self, name: &str, variable: &str, words: &[&str]) -> Result<()> {
        self.run.shell.remove_path("target")?;
        let (tool, ranks) = (&self.tool, RANKS.to_string());
        let (launcher, words) = words.split_first().context("no launcher")?;
        let run = cmd!(self.run.shell, "timeout 120 {tool} memtrace run --children=1KiB --exec {launcher} --");
        let ended = output(run.args(words).args([&*ranks, "./rank", variable]))?;
        let name = format!("{name}, with the launcher");
        self.checks.exit(&name, ended.status, ended.status.success(), &both_streams(&ended));
        self.all_are_right(&name)
    }

    /// Starts the same job a second time.
    fn two_jobs(&mut self, name: &str, variable: &str, words: &[&str]) -> Result<()> {
        self.recorded(words, &[variable])?;
        self.again(words, &[variable])?;
        let (report, code) = self.report()?;
        self.checks.says(name, &report, "these are recordings of 2 jobs");
        self.checks.equal(&format!("{name}, two jobs: exit code"), code, Some(2));
        Ok(())
    }

    /// If one rank fails, the launcher must end the others, as it does without memtrace.
    fn one_fails(&mut self, name: &str, variable: &str, words: &[&str]) -> Result<()> {
        let alone = output(self.launched(words).args(["./rank", variable, "fail"]))?;
        let ended = self.recorded(words, &[variable, "fail"])?;
        self.checks.equal(&format!("{name}, rank 1 aborts"), ended.status, alone.status);
        self.all_are_right(&format!("{name}, rank 1 aborts"))
    }

    /// If launchers are nested, the innermost one counts.
    fn nested(&mut self) -> Result<()> {
        let words = [&["srun", "--quiet", "-n", "1"], TORCHRUN].concat();
        self.recorded(&words, &["RANK"])?;
        self.all_are_right("torchrun below srun")
    }

    /// Runs without the command. Each file has the host, the process and the rank in its name.
    fn named(&mut self) -> Result<()> {
        let (preload, (_, variable, words)) = (self.preload.display(), LAUNCHERS[0]);
        let command = self.launched(words).arg("env").arg(format!("LD_PRELOAD={preload}"));
        let command = command.args(["MEMTRACE_RUN=all", "MEMTRACE_OUT=named/%h-%p-%r.memtrace"]);
        output(command.args(["./rank", variable]))?;
        let files = self.run.shell.read_dir("named")?;
        let stems = files.iter().filter_map(|file| file.file_stem()?.to_str());
        let mut ranks: Vec<&str> = stems.filter_map(|stem| stem.rsplit('-').next()).collect();
        ranks.sort_unstable();
        self.checks.equal("files named by their ranks", ranks, vec!["0", "1", "2", "3"]);
        Ok(())
    }
}
