//! A lane is one kind of check, selected by name. The tiers *quick* and *full* are lists of lanes.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Error, Result, bail};
use memtrace_runner::kit::{self, Kit, SimulatedGpu};
use tempfile::TempDir;
use xshell::{Cmd, Shell};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) tier: Tier,
    /// What is true if the lane passes, in one line.
    pub(crate) holds: &'static str,
    /// Files and folders that only this lane runs or reads. The lane `listed` fails if one belongs to no lane.
    pub(crate) owns: &'static [&'static str],
    /// Returns a short summary with numbers.
    pub(crate) run: fn(&Run) -> Result<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Part of both tiers; the quick tier runs its smallest form.
    Quick,
    /// Part of the full tier only.
    Full,
}

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// How much of a lane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneSize {
    Small,
    Full,
}

/// The environment that lanes run in.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) size: LaneSize,
    /// Its current folder is the repository's root.
    pub(crate) shell: Shell,
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    scratch: TempDir,
}

impl Run {
    pub(crate) fn new(size: LaneSize) -> Result<Self> {
        // Several checkouts may share a target folder, so the path from compile time may belong to another checkout.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().context("xtask is in the repository")?.to_owned();
        let shell = Shell::new()?;
        shell.change_dir(&root);
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = std::path::absolute(target)?;
        // An absolute path, because lanes change the folder.
        shell.set_var("CARGO_TARGET_DIR", &target);
        Ok(Self { size, shell, root, target, scratch: tempfile::tempdir()? })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.size == LaneSize::Full
    }

    /// A temporary folder with this name, created on first use.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        Ok(self.shell.create_dir(self.scratch.path().join(name))?)
    }

    /// The folder for downloads and tools, kept between runs.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        kit::cache().map_err(Error::msg)
    }

    /// A simulated GPU, with a target folder of its own.
    pub(crate) fn simulated_gpu(&self) -> Result<SimulatedGpu> {
        let kit = Kit::of(&self.root).map_err(Error::msg)?;
        SimulatedGpu::of(&kit, &self.target.join("simulated")).map_err(Error::msg)
    }

    /// The command in README.md below the comment `<!-- mark -->`.
    pub(crate) fn readme_command(&self, mark: &str) -> Result<Cmd<'_>> {
        let readme = self.shell.read_file(self.root.join("README.md"))?;
        let found = readme.split(&format!("<!-- {mark} -->\n```sh\n")).nth(1).and_then(|after| after.lines().next());
        let command = found.with_context(|| format!("README.md has no command below <!-- {mark} -->"))?;
        let (program, arguments) = command.split_once(' ').context("the README's command has no arguments")?;
        Ok(self.shell.cmd(program).args(arguments.split(' ')))
    }
}

/// Genuine snapshots of PyTorch, from the folder that `MEMTRACE_PYTORCH_SNAPSHOTS` names; none if it is not set.
pub(crate) fn genuine_snapshots() -> Result<Vec<PathBuf>> {
    let folder = std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS").map(std::fs::read_dir).transpose()?;
    let mut files: Vec<PathBuf> = folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "pickle"));
    files.sort_unstable();
    Ok(files)
}

/// Runs a command, whatever its exit status, and returns its output.
pub(crate) fn output(command: Cmd<'_>) -> Result<Output> {
    Ok(command.quiet().ignore_status().output()?)
}

pub(crate) fn both_streams(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Both output streams of a command that must succeed.
pub(crate) fn said(command: Cmd<'_>) -> Result<String> {
    let shown = command.to_string();
    let output = output(command)?;
    let text = both_streams(&output);
    if !output.status.success() {
        bail!("`{shown}` ended with {}:\n{text}", output.status);
    }
    Ok(text)
}
