//! PyTorch's own viewers on the main job's snapshot. They are not in this repository. The variable
//! MEMTRACE_SNAPSHOT_CHECK names a program that runs them, `PROGRAM [--quick] SNAPSHOT.pickle OUTDIR`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use super::main_job;
use crate::lane::Run;

pub(crate) fn run(run: &Run) -> Result<String> {
    let Some(check) = std::env::var_os("MEMTRACE_SNAPSHOT_CHECK").map(PathBuf::from).filter(|check| check.exists())
    else {
        return Ok("NOT RUN: MEMTRACE_SNAPSHOT_CHECK names no program".to_owned());
    };
    let short = main_job::files(run, &["--iterations", "1"])?.join("snapshot.pickle");
    let out = run.scratch("viewers")?;
    if !run.is_full() {
        cmd!(run.shell, "{check} --quick {short} {out}").run()?;
        return Ok("the newest viewer shows one iteration".to_owned());
    }
    cmd!(run.shell, "{check} {short} {out}").run()?;
    let long = main_job::files(run, &[])?.join("snapshot.pickle");
    cmd!(run.shell, "{check} --quick {long} {out}-long").env("MEMVIZ_VIEWS", "Active Memory").run()?;
    Ok("every viewer shows one iteration, the newest five".to_owned())
}
