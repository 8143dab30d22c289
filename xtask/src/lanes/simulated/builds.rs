//! The programs, built by as few calls of cargo as there can be. Which features a dependency has, and so whether it is
//! built once more, depends on the packages that are named together: all that need candle or the driver's own library are
//! always named together, and so are all that need neither.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xshell::cmd;

use crate::checks::last_lines;
use crate::lane::{Run, output, said};

/// Packages whose programs are linked against the driver, for cargo; `--features` stands for all of them.
pub(super) const LINKED: &[&str] = &[
    "--package=candle-memtrace",
    "--package=llama-example",
    "--package=candle-train",
    "--package=candle-recorded",
    "--package=categories",
    "--package=cudarc-linked",
    "--features=cuda",
];

/// The profile of all that runs on simulated GPUs only.
pub(super) const PROFILE: &str = "simulated";

/// Packages that need no toolkit to be built: they find the driver when they run, if they need it at all.
const LOADED: &[&str] =
    &["--package=memtrace-preload", "--package=memtrace-runner", "--package=gpu-check", "--package=cudarc-loaded"];

/// Programs by name.
#[derive(Debug)]
pub(super) struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    pub(super) fn path(&self, name: &str) -> Result<&Path> {
        Ok(self.0.get(name).with_context(|| format!("cargo built no {name}"))?)
    }
}

/// Builds these targets of the linked programs. The test makes cargo look at what tests depend on, as it does where
/// there are others: features are the same ones then.
pub(super) fn linked(run: &Run, targets: &[&str]) -> Result<Programs> {
    let options = [LINKED, &["--test=any_gpu"], targets].concat();
    with_toolkit(run, &options)
}

/// Builds with cargo, for simulated GPUs, from the folder in which the shell is.
pub(super) fn with_toolkit(run: &Run, options: &[&str]) -> Result<Programs> {
    let (shell, script) = (&run.shell, script(run));
    let format = "--message-format=json-render-diagnostics";
    let command = cmd!(shell, "{script} -- cargo build --quiet --profile {PROFILE} {options...} {format}");
    let shown = command.to_string();
    let built = output(command)?;
    if !built.status.success() {
        bail!("`{shown}` ended with {}:\n{}", built.status, last_lines(&String::from_utf8_lossy(&built.stderr)));
    }
    programs(&String::from_utf8(built.stdout)?)
}

pub(super) fn script(run: &Run) -> PathBuf {
    run.root.join("scripts/with-simulated-gpu")
}

/// Where what is built with the toolkit goes to, as the script has it.
pub(super) fn simulated_target(run: &Run) -> PathBuf {
    run.target.join("simulated")
}

/// Builds what needs no toolkit; the folder where it is.
pub(super) fn loaded(run: &Run) -> Result<PathBuf> {
    let shell = &run.shell;
    said(cmd!(shell, "cargo build --quiet {LOADED...}"))?;
    Ok(run.target.join("debug"))
}

#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// From what cargo says as lines of JSON.
fn programs(messages: &str) -> Result<Programs> {
    let mut programs = BTreeMap::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line).with_context(|| format!("cargo said {line}"))?;
        if let Message { target: Some(target), executable: Some(executable) } = message {
            programs.insert(target.name, executable);
        }
    }
    Ok(Programs(programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"one"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"two"},"executable":"/built/two"}
{"reason":"build-finished","success":true}"#;
        let programs = programs(said).unwrap();
        assert_eq!(programs.path("two").unwrap(), Path::new("/built/two"));
        assert_eq!(programs.path("one").unwrap_err().to_string(), "cargo built no one");
    }
}
