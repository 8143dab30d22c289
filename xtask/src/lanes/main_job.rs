//! The README's main job: its files must agree with each other, with theory and with Perfetto's trace processor.

mod perfetto;
mod theory;

use std::path::PathBuf;

use anyhow::Result;

use super::report::JsonReport;
use crate::checks::Checks;
use crate::lane::Run;

const FILES: [&str; 9] = [
    "memory.layout.json",
    "peak-count.svg",
    "peak.folded",
    "peak.svg",
    "recording.memtrace",
    "report.html",
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
    let report = JsonReport::read(&folder.join("report.json"))?;
    theory::check(&mut checks, &report, std::fs::metadata(folder.join("snapshot.pickle"))?.len());
    checks.result("Perfetto's trace processor", perfetto::check(run, &folder));
    checks.end()
}

/// The output folder of the README's command with these additional arguments. Runs the command once for each list of
/// arguments.
pub(crate) fn files(run: &Run, arguments: &[&str]) -> Result<PathBuf> {
    let folder = run.scratch("main-job")?.join(format!("run{}", arguments.join("")));
    if !folder.exists() {
        run.readme_command("run")?.args(["--", "--out"]).arg(&folder).args(arguments).run()?;
    }
    Ok(folder)
}
