//! Benchmarks: that they run, and those whose figures have limits.

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::lane::{Run, said};

/// Each benchmark once.
pub(crate) fn run(run: &Run) -> Result<String> {
    let names = ["record", "spans", "cuda", "export", "scale", "unwind"];
    let benches: Vec<&str> = names.iter().flat_map(|name| ["--bench", name]).collect();
    cmd!(run.shell, "cargo bench --quiet {benches...} -- --test").run()?;
    Ok(format!("{} benchmarks", names.len()))
}

/// Instructions per event, as callgrind counts them: the same on every machine.
pub(crate) fn instructions(run: &Run) -> Result<String> {
    if cmd!(run.shell, "valgrind --version").quiet().ignore_stdout().run().is_err() {
        bail!("valgrind is needed; on Debian and Ubuntu: apt-get install valgrind");
    }
    let counts = said(cmd!(run.shell, "scripts/bench-record --gate"))?;
    print!("{counts}");
    let rows: Vec<&str> = counts.lines().filter(|line| line.split(' ').count() == 3).collect();
    Ok(rows.join(", "))
}

pub(crate) fn scale(run: &Run) -> Result<String> {
    let text = said(cmd!(run.shell, "scripts/check-scale"))?;
    print!("{text}");
    let records = text.lines().find(|line| line.contains(" records, "));
    Ok(format!("within its limits: {}", records.context("the bench says nothing of its records")?))
}

/// That the comparisons still run; figures want a quiet machine and are in docs/performance.md.
pub(crate) fn peers(run: &Run) -> Result<String> {
    cmd!(run.shell, "scripts/bench-peers --test").run()?;
    cmd!(run.shell, "scripts/bench-toggle --test").run()?;
    cmd!(run.shell, "scripts/bench-sample --test").run()?;
    Ok("the three comparisons run".to_owned())
}
