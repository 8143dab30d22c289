//! The README's main job: its files, held against each other, against theory and by Perfetto's own trace processor.

mod perfetto;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::cmd;

use crate::checks::Checks;
use crate::lane::Run;

const FILES: [&str; 9] = [
    "memory.categories.html",
    "memory.layout.json",
    "peak-count.svg",
    "peak.folded",
    "peak.svg",
    "recording.memtrace",
    "report.json",
    "snapshot.pickle",
    "timeline.trace.json",
];

pub(crate) fn run(run: &Run) -> Result<String> {
    let folder = files(run, if run.is_full() { &[] } else { &["--iterations", "3"] })?;
    let mut checks = Checks::default();
    for file in FILES {
        let size = std::fs::metadata(folder.join(file)).map_or(0, |file| file.len());
        checks.that(&format!("{file}: {size} bytes"), size > 0);
    }
    let report = report::read(&folder.join("report.json"))?;
    report::check(&mut checks, &report, std::fs::metadata(folder.join("snapshot.pickle"))?.len());
    checks.result("Perfetto's trace processor", perfetto::check(run, &folder));
    checks.end()
}

/// The folder with what the README's command wrote, with such arguments; made once.
pub(crate) fn files(run: &Run, arguments: &[&str]) -> Result<PathBuf> {
    let folder = run.scratch("main-job")?.join(format!("run{}", arguments.join("")));
    if !folder.exists() {
        let command = run.readme_command("run")?;
        let mut words = command.split(' ');
        let program = words.next().context("the README's command is empty")?;
        cmd!(run.shell, "{program} {words...} -- --out {folder} {arguments...}").run()?;
    }
    Ok(folder)
}
