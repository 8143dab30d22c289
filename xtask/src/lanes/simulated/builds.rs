//! Builds the test programs, with as few cargo commands as possible. Cargo unifies features over the packages that a
//! command names, so a command with other packages would build dependencies again. So all packages that need candle or
//! the driver's library are always named together, and so are all packages that need neither.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use crate::lane::{Run, said};
use crate::programs::Programs;

/// Cargo options that select the packages that are linked against the driver.
pub(crate) const LINKED: &[&str] = &[
    "--package=candle-memtrace",
    "--package=llama-example",
    "--package=candle-train",
    "--package=candle-ranks",
    "--package=candle-recorded",
    "--package=categories",
    "--package=checkpointed",
    "--package=cudarc-linked",
    "--package=uses",
    "--features=cuda",
];

/// The profile of programs that run on simulated GPUs only.
pub(crate) const PROFILE: &str = "simulated";

/// Packages that build without a toolkit: they load the driver at run time, if at all.
const LOADED: &[&str] = &[
    "--package=memtrace-preload",
    "--package=memtrace-runner",
    "--package=memtrace-gpu-check",
    "--package=cudarc-loaded",
];

/// Builds these targets of the linked packages. `any_gpu` makes cargo also unify the features of dev-dependencies, as
/// it does for other tests.
pub(crate) fn linked(run: &Run, targets: &[&str]) -> Result<Programs> {
    let options = [LINKED, &["--test=any_gpu"], targets].concat();
    with_toolkit(run, &options)
}

/// Builds for simulated GPUs, in the shell's current folder.
pub(super) fn with_toolkit(run: &Run, options: &[&str]) -> Result<Programs> {
    let build = cmd!(run.shell, "cargo build --quiet --profile {PROFILE} {options...}");
    Programs::built_by(build.envs(run.simulated_gpu()?.variables()))
}

/// Builds the packages that need no toolkit; returns their folder.
pub(super) fn loaded(run: &Run) -> Result<PathBuf> {
    let shell = &run.shell;
    said(cmd!(shell, "cargo build --quiet {LOADED...}"))?;
    Ok(run.target.join("debug"))
}
