//! Results of lanes as a table, on the terminal and in docs/checks.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;
use xshell::cmd;

use crate::lane::{Lane, Run, Tier};
use crate::lanes::LANES;

#[derive(Debug)]
pub(crate) struct LaneOutcome {
    name: &'static str,
    tier: Tier,
    /// The lane's summary, or its error.
    pub(crate) result: Result<String, String>,
    seconds: u64,
}

impl LaneOutcome {
    pub(crate) fn of(lane: &Lane, run: &Run) -> Self {
        println!("\n== {}: {}", lane.name, lane.holds);
        let began = Instant::now();
        let result = (lane.run)(run).map_err(|error| format!("{error:#}"));
        if let Err(error) = &result {
            println!("FAILED {}: {error}", lane.name);
        }
        Self { name: lane.name, tier: lane.tier, result, seconds: began.elapsed().as_secs() }
    }

    fn summary(&self) -> String {
        match &self.result {
            Ok(summary) => summary.clone(),
            Err(error) => format!("FAILED: {}", error.lines().next().unwrap_or("")),
        }
    }

    fn row(&self, revision: &str) -> String {
        // An error may contain paths of this machine.
        let summary = self.result.as_ref().map_or("FAILED", String::as_str).replace('|', "\\|");
        format!("| {} | {} | {summary} | {} | {revision} |", self.name, self.tier.name(), self.seconds)
    }
}

pub(crate) fn list(lanes: &[Lane]) -> String {
    let line = |lane: &Lane| format!("    {:<12} {:<6} {}\n", lane.name, lane.tier.name(), lane.holds);
    lanes.iter().map(line).collect()
}

pub(crate) fn text(outcomes: &[LaneOutcome]) -> String {
    let mut text = String::from("lane          seconds  result\n");
    for outcome in outcomes {
        let _ = writeln!(text, "{:<12} {:>8}  {}", outcome.name, outcome.seconds, outcome.summary());
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let seconds: u64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let _ = writeln!(text, "{:<12} {seconds:>8}", "all");
    let _ = write!(text, "{} passed, {failed} failed", outcomes.len() - failed);
    text
}

const DOCUMENT: &str = "docs/checks.md";

/// Replaces the rows of these lanes in docs/checks.md; other rows stay.
pub(crate) fn write_document(run: &Run, outcomes: &[LaneOutcome]) -> Result<()> {
    let shell = &run.shell;
    let revision = cmd!(shell, "git rev-parse --short HEAD").read()?;
    let changed = cmd!(shell, "git status --porcelain --untracked-files=no -- . :!{DOCUMENT}").read()?;
    let state = if changed.is_empty() { "" } else { ", changed" };
    let path = run.root.join(DOCUMENT);
    let before = shell.read_file(&path).unwrap_or_default();
    let new = outcomes.iter().map(|outcome| (outcome.name, outcome.row(&format!("{revision}{state}"))));
    shell.write_file(path, document(&before, &new.collect(), std::thread::available_parallelism()?.get()))?;
    println!("wrote {DOCUMENT}");
    Ok(())
}

fn document(before: &str, new: &BTreeMap<&str, String>, cores: usize) -> String {
    let mut document = format!(
        "# Checks\n\nThe last run of each lane at full size, written by `cargo xtask full` on {cores} cores. `.ci/run` runs the lanes of tier\n\
         *quick* in their smallest form. Seconds include builds.\n\n\
         | lane | tier | result | seconds | revision |\n|---|---|---|---|---|\n"
    );
    for lane in LANES {
        let begin = format!("| {} |", lane.name);
        let old = || before.lines().find(|line| line.starts_with(&begin)).map(str::to_owned);
        if let Some(row) = new.get(lane.name).cloned().or_else(old) {
            let _ = writeln!(document, "{row}");
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_did_not_run_keeps_its_row() {
        let row = |name: &str, revision: &str| format!("| {name} | quick | fine | 3 | {revision} |");
        let all = |revision: &str| LANES.iter().map(|lane| (lane.name, row(lane.name, revision))).collect();
        let first = document("", &all("one"), 2);
        let one = BTreeMap::from([(LANES[1].name, row(LANES[1].name, "two"))]);
        let second = document(&first, &one, 2);
        let rows = |document: &str| document.lines().filter(|line| line.contains("| fine |")).count();
        assert_eq!((rows(&first), rows(&second)), (LANES.len(), LANES.len()));
        let expected = [row(LANES[0].name, "one"), row(LANES[1].name, "two")].join("\n");
        assert!(second.contains(&expected), "{second}");
    }
}
