//! A lane is one kind of check, with a name: what the two tiers are made of.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use xshell::{Cmd, Shell};

/// One kind of check.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) tier: Tier,
    /// What holds if the lane passes, in a line.
    pub(crate) holds: &'static str,
    /// Files and folders that only this lane runs or reads: none of them may be in no lane.
    pub(crate) owns: &'static [&'static str],
    /// Ends with what it showed, in a few words with numbers.
    pub(crate) run: fn(&Run) -> Result<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// In both tiers, in the quick one as its smallest form.
    Quick,
    /// In the full tier alone.
    Full,
}

/// How much of a lane is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Full,
}

/// What lanes are run with.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) size: Size,
    /// Stands in the repository's root.
    pub(crate) shell: Shell,
    pub(crate) root: PathBuf,
    /// Where cargo builds to.
    pub(crate) target: PathBuf,
    scratch: TempDir,
}

impl Run {
    pub(crate) fn new(size: Size) -> Result<Self> {
        // Cargo says where it is run: several checkouts may share a target folder.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().context("xtask is in the repository")?.to_owned();
        let shell = Shell::new()?;
        shell.change_dir(&root);
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = std::path::absolute(target)?;
        // For lanes that change folder, and for scripts whose default is another one.
        shell.set_var("CARGO_TARGET_DIR", &target);
        Ok(Self { size, shell, root, target, scratch: tempfile::tempdir()? })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.size == Size::Full
    }

    /// A folder for a lane's files, empty at its first use, gone when everything has run.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        Ok(self.shell.create_dir(self.scratch.path().join(name))?)
    }

    /// What is kept between runs: downloads, tools.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).context("no HOME")?;
        Ok(cache.join("memtrace"))
    }

    /// The command that stands in the README below a mark.
    pub(crate) fn readme_command(&self, mark: &str) -> Result<String> {
        let readme = self.shell.read_file(self.root.join("README.md"))?;
        let found = readme.split(&format!("<!-- {mark} -->\n```sh\n")).nth(1).and_then(|after| after.lines().next());
        Ok(found.with_context(|| format!("README.md has no command below <!-- {mark} -->"))?.to_owned())
    }
}

/// Runs to the end, whatever it is, and keeps what it said.
pub(crate) fn output(command: Cmd<'_>) -> Result<Output> {
    Ok(command.quiet().ignore_status().output()?)
}

/// Both streams of a command that must end well.
pub(crate) fn said(command: Cmd<'_>) -> Result<String> {
    let shown = command.to_string();
    let output = output(command)?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        bail!("`{shown}` ended with {}:\n{text}", output.status);
    }
    Ok(text)
}
