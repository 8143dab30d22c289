//! Tables of many runs. DuckDB runs the queries of docs/queries.md, Polars reads the same files, and both must agree
//! with the reports. `xtask/tables` has the script.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::main_job;
use crate::cached::python_environment;
use crate::checks::counted;
use crate::lane::{Run, said};

pub(crate) fn run(run: &Run) -> Result<String> {
    let python = python(run)?;
    let folder = run.scratch("tables")?;
    cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
    let mut recordings = vec![(run.root.join("tests/golden/everything.memtrace"), "other")];
    for (commit, iterations) in [("before", "1"), ("after", "2")] {
        let job = main_job::files(run, &["--iterations", iterations])?;
        recordings.push((job.join("recording.memtrace"), commit));
    }
    let reports: Vec<PathBuf> =
        recordings.iter().map(|(file, commit)| exported(run, &folder, file, commit)).collect::<Result<_>>()?;
    let runs = reports.len();
    let (script, queries) = (run.root.join("xtask/tables/check_queries.py"), run.root.join("docs/queries.md"));
    let checks = counted(&said(cmd!(run.shell, "{python} {script} {queries} {folder} {reports...}"))?)?;
    Ok(format!("{checks} answers of DuckDB and Polars on {runs} runs"))
}

/// Adds a recording to the runs. Returns its report, which has the run's name.
fn exported(run: &Run, folder: &Path, recording: &Path, commit: &str) -> Result<PathBuf> {
    let program = run.target.join("debug/cargo-memtrace");
    let runs = folder.join("runs");
    let label = format!("commit={commit}");
    let said = said(cmd!(run.shell, "{program} memtrace export {recording} --to parquet -o {runs} --label {label}"))?;
    let name = said.trim_end().rsplit_once("run=").context("no run was written")?.1;
    let report = folder.join(format!("{name}.json"));
    cmd!(run.shell, "{program} memtrace export {recording} --to json -o {report}").quiet().run()?;
    Ok(report)
}

/// A Python with DuckDB and Polars, in the cache.
pub(super) fn python(run: &Run) -> Result<PathBuf> {
    Ok(python_environment(run, "tables")?.join("python"))
}
