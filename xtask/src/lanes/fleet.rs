//! Ranks of several jobs in one folder of tables. DuckDB, Spark on two workers, and the recordings' reports must agree
//! on each line. `xtask/tables` has the script.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::tables;
use crate::lane::{Run, said};

/// Jobs by their launcher's id, and their numbers of ranks.
const JOBS: [(&str, u32); 2] = [("eight", 8), ("two", 2)];

pub(crate) fn run(run: &Run) -> Result<String> {
    if cmd!(run.shell, "java -version").quiet().ignore_stderr().run().is_err() {
        return Ok("NOT RUN: there is no java, which Spark needs".to_owned());
    }
    let python = python(run)?;
    let folder = run.scratch("fleet")?;
    cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
    let reports: Vec<PathBuf> = JOBS.iter().map(|(id, ranks)| job(run, id, *ranks)).collect::<Result<_>>()?;
    let (script, queries) = (run.root.join("xtask/tables/check_fleet.py"), run.root.join("docs/queries.md"));
    let text = said(cmd!(run.shell, "{python} {script} {queries} {folder} {reports...}"))?;
    let checks = || text.lines().filter(|line| line.starts_with("ok ") || line.starts_with("FAIL "));
    checks().for_each(|line| println!("{line}"));
    ensure!(checks().count() > 0, "nothing was checked");
    Ok(format!("{} answers of DuckDB and Spark on {} jobs", checks().count(), JOBS.len()))
}

/// Runs the ranks of a job in parallel, with different numbers of iterations, and adds their tables to the folder.
/// Returns the job's report.
fn job(run: &Run, id: &str, ranks: u32) -> Result<PathBuf> {
    let (program, folder) = (run.target.join("debug/cargo-memtrace"), run.scratch("fleet")?);
    let recordings = folder.join(id);
    std::fs::create_dir_all(&recordings)?;
    let out = |rank: u32| folder.join(format!("{id}-{rank}"));
    let start = |rank: u32| {
        let (out, iterations) = (out(rank), (1 + rank % 3).to_string());
        let command = run.readme_command("run")?.args(["--", "--out"]).arg(&out).args(["--iterations", &iterations]);
        let command = command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        let mut command = Command::from(command.env("TORCHELASTIC_RUN_ID", id));
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    let running: Vec<Child> = (0..ranks).map(start).collect::<Result<_>>()?;
    for (rank, mut running) in (0..).zip(running) {
        ensure!(running.wait()?.success(), "rank {rank} failed");
        let recording = recordings.join(format!("{rank}.memtrace"));
        std::fs::rename(out(rank).join("recording.memtrace"), recording).context("the example wrote no recording")?;
    }
    let report = folder.join(format!("{id}.json"));
    let json = cmd!(run.shell, "{program} memtrace report {recordings} --json --top 100000").quiet().read()?;
    std::fs::write(&report, json)?;
    let runs = folder.join("runs");
    cmd!(run.shell, "{program} memtrace export {recordings} --to parquet -o {runs}").quiet().run()?;
    Ok(report)
}

/// A Python for the tables that also has Spark, in the cache: 320 MB.
fn python(run: &Run) -> Result<PathBuf> {
    let python = tables::python(run)?;
    let requirements = run.root.join("xtask/tables/requirements-spark.txt");
    if cmd!(run.shell, "{python} -c 'import pyspark'").quiet().ignore_stderr().run().is_err() {
        cmd!(run.shell, "{python} -m pip install --quiet --no-deps --require-hashes -r {requirements}").run()?;
    }
    Ok(python)
}
