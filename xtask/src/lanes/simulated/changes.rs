//! Makes changes that the advice names in models of candle-transformers, and compares the peaks before and after.
//!
//! The published package is copied and built outside its registry, so that reports name its lines. It is built once
//! unchanged, and once with the patches of `tests/simulated/uses/changes`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::builds;
use super::command::GpuCommand;
use super::published::published;
use crate::checks::{Checks, number_before};
use crate::lane::Run;
use crate::programs::Programs;

const PACKAGE: &str = "candle-transformers";
const PROGRAM: &str = "tests/simulated/uses";

/// A model of the program `uses`, and the file that its patch changes.
const CHANGES: [(&str, &str); 2] = [("llama-3.2-1b", "llama"), ("bert-base", "bert")];

pub(super) fn run(run: &Run, checks: &mut Checks) -> Result<()> {
    let folder = run.target.join("uses");
    copy(run, &folder)?;
    let build = || {
        let manifest = format!("--manifest-path={}", folder.join("Cargo.toml").display());
        builds::with_toolkit(run, &[&manifest, "--features=cuda", "--bin=uses"])
    };
    let before = CHANGES.map(|(model, _)| wasted(run, &build()?, model));
    for (_, file) in CHANGES {
        let patch = run.root.join(PROGRAM).join("changes").join(format!("{file}.patch"));
        let _there = run.shell.push_dir(folder.join(PACKAGE));
        cmd!(run.shell, "patch --quiet -p1 -i {patch}").quiet().run()?;
    }
    let programs = build()?;
    for ((model, file), before) in CHANGES.into_iter().zip(before) {
        let (before, after) = (before?, wasted(run, &programs, model)?);
        let patch = run.shell.read_file(run.root.join(PROGRAM).join("changes").join(format!("{file}.patch")))?;
        before.compare(&after, model, &format!("models/{file}.rs:"), &replaced(&patch), checks);
    }
    Ok(())
}

/// A workspace with the program and the published package.
fn copy(run: &Run, folder: &Path) -> Result<()> {
    let shell = &run.shell;
    shell.create_dir(folder)?;
    let published = published(run, &run.root.join("Cargo.toml"), PACKAGE)?;
    let copied = folder.join(PACKAGE);
    shell.remove_path(&copied)?;
    cmd!(shell, "cp -r --no-preserve=mode {published} {copied}").quiet().run()?;
    shell.copy_file(run.root.join("Cargo.lock"), folder)?;
    let link = folder.join("src");
    shell.remove_path(&link)?;
    std::os::unix::fs::symlink(run.root.join(PROGRAM).join("src"), link)?;
    let workspace = shell.read_file(run.root.join("Cargo.toml"))?;
    let program = shell.read_file(run.root.join(PROGRAM).join("Cargo.toml"))?;
    let manifest = manifest(&workspace, &program, &run.root).context("Cargo.toml has other sections")?;
    Ok(shell.write_file(folder.join("Cargo.toml"), manifest)?)
}

/// The program's manifest with the values that it inherits, the workspace's profiles, and the copied package.
fn manifest(workspace: &str, program: &str, root: &Path) -> Option<String> {
    let inherited = workspace.find("[workspace.package]")?..workspace.find("\n[package]")?;
    let profiles = workspace.find("[profile.release]")?..;
    let program = program.replace("\"../../..\"", &format!("{:?}", root.display().to_string()));
    let patch = format!("[patch.crates-io]\n{PACKAGE} = {{ path = \"{PACKAGE}\" }}\n");
    let (inherited, profiles) = (&workspace[inherited], &workspace[profiles]);
    Some(format!("[workspace]\nresolver = \"3\"\n\n{inherited}\n{program}\n{patch}\n{profiles}"))
}

/// The lines that a patch replaces.
fn replaced(patch: &str) -> Vec<RangeInclusive<u64>> {
    let hunks = patch.lines().filter_map(|line| line.strip_prefix("@@ -")?.split(' ').next());
    let range = |hunk: &str| {
        let (first, count) = hunk.split_once(',').unwrap_or((hunk, "1"));
        let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
        Some(first..=first + count.saturating_sub(1))
    };
    hunks.filter_map(range).collect()
}

/// A model's peak, and for each finding the line and the peak without the waste.
struct Wasted {
    peak: u64,
    rows: Vec<(String, u64)>,
}

fn wasted(run: &Run, programs: &Programs, model: &str) -> Result<Wasted> {
    let command = GpuCommand::of(run, programs.path("uses")?).arguments(&[model, "--waste"]);
    let log: PathBuf = run.scratch("uses")?.join("log");
    let said = command.variable("MEMTRACE_CUSIM_MEMORY", "80GiB").run(run, &log)?.both_streams();
    let peak = said.lines().find_map(|line| number_before(line.strip_prefix("peak of ")?, " bytes"));
    let lines = said.lines().filter_map(|line| line.split_once(" bytes of ").map(|(_, at)| at.to_owned()));
    let peaks = said.lines().filter_map(|line| number_before(line.split_once("the peak is ")?.1, " bytes"));
    let rows = lines.zip(peaks).collect();
    Ok(Wasted { peak: peak.with_context(|| format!("{model}: no peak:\n{said}"))?, rows })
}

impl Wasted {
    /// The peak after the change must be at most what the first finding predicts, and at least what all findings
    /// together predict.
    fn compare(&self, after: &Self, model: &str, file: &str, replaced: &[RangeInclusive<u64>], checks: &mut Checks) {
        let named = self.rows.first().map_or("", |(at, _)| at);
        let line = named.split_once(file).and_then(|(_, line)| line.split(' ').next()?.parse().ok());
        let is_replaced = line.is_some_and(|line| replaced.iter().any(|range| range.contains(&line)));
        checks.that(&format!("{model}: the change replaces the line that the advice names, {named}"), is_replaced);
        let predicted = |row: Option<&(String, u64)>| row.map_or(self.peak, |(_, peak)| *peak);
        let range = predicted(self.rows.last())..=predicted(self.rows.first());
        let peaks = format!("{} bytes, with the change {} of {range:?} predicted", self.peak, after.peak);
        checks.that(&format!("{model}: {peaks}"), range.contains(&after.peak) && after.peak < self.peak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_replaces_the_lines_of_its_hunks() {
        assert_eq!(replaced("--- a\n+++ b\n@@ -3,2 +3 @@\n-x\n-y\n+z\n@@ -9 +8,2 @@\n"), [3..=4, 9..=9]);
    }
}
