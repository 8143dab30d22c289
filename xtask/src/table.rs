//! What the lanes showed, as a table on the terminal and in docs/checks.md.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;
use xshell::cmd;

use crate::lane::{Lane, Run, Tier};

/// How a lane went.
#[derive(Debug)]
pub(crate) struct Outcome {
    name: &'static str,
    tier: Tier,
    /// What it showed, or what failed.
    pub(crate) showed: Result<String, String>,
    seconds: u64,
}

impl Outcome {
    pub(crate) fn of(lane: &Lane, run: &Run) -> Self {
        println!("\n== {}: {}", lane.name, lane.holds);
        let began = Instant::now();
        let showed = (lane.run)(run).map_err(|error| format!("{error:#}"));
        if let Err(error) = &showed {
            println!("FAILED {}: {error}", lane.name);
        }
        Self { name: lane.name, tier: lane.tier, showed, seconds: began.elapsed().as_secs() }
    }

    fn showed(&self) -> String {
        match &self.showed {
            Ok(showed) => showed.clone(),
            Err(error) => format!("FAILED: {}", error.lines().next().unwrap_or("")),
        }
    }
}

pub(crate) fn list(lanes: &[Lane]) -> String {
    let line = |lane: &Lane| format!("    {:<12} {:<6} {}\n", lane.name, tier(lane.tier), lane.holds);
    lanes.iter().map(line).collect()
}

pub(crate) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::from("lane          seconds  showed\n");
    for outcome in outcomes {
        let _ = writeln!(text, "{:<12} {:>8}  {}", outcome.name, outcome.seconds, outcome.showed());
    }
    let failed = outcomes.iter().filter(|outcome| outcome.showed.is_err()).count();
    let seconds: u64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let _ = writeln!(text, "{:<12} {seconds:>8}", "all");
    let _ = write!(text, "{} passed, {failed} failed", outcomes.len() - failed);
    text
}

/// docs/checks.md: what this revision showed.
pub(crate) fn write_document(run: &Run, outcomes: &[Outcome]) -> Result<()> {
    let shell = &run.shell;
    let revision = cmd!(shell, "git rev-parse --short HEAD").read()?;
    let changed = cmd!(shell, "git status --porcelain --untracked-files=no").read()?;
    let state = if changed.is_empty() { "" } else { ", with changes that were not committed" };
    let date = cmd!(shell, "date -u +%Y-%m-%d").read()?;
    let cores = std::thread::available_parallelism()?;
    let mut document = format!(
        "# Checks\n\nThe last run of the full tier, as `cargo xtask full` wrote it: {date}, revision {revision}{state}, on {cores} cores.\n\
         Lanes of the tier *quick* are also in `.ci/run`, as their smallest form; seconds include what had to be built.\n\n\
         | lane | tier | what it showed | seconds |\n|---|---|---|---|\n"
    );
    for outcome in outcomes {
        let showed = outcome.showed().replace('|', "\\|");
        let _ = writeln!(document, "| {} | {} | {showed} | {} |", outcome.name, tier(outcome.tier), outcome.seconds);
    }
    shell.write_file(run.root.join("docs/checks.md"), document)?;
    println!("wrote docs/checks.md");
    Ok(())
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Quick => "quick",
        Tier::Full => "full",
    }
}
