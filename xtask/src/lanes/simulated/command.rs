//! Commands that run on simulated GPUs.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use crate::lane::{Run, output};

/// Builder of a command.
#[derive(Clone, Debug)]
pub(super) struct GpuCommand<'a> {
    program: PathBuf,
    arguments: Vec<&'a str>,
    variables: Vec<(String, String)>,
    folder: PathBuf,
}

#[derive(Debug)]
pub(super) struct ProgramOutput {
    /// None if a signal ended the program.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl ProgramOutput {
    pub(super) fn of(ended: Output) -> Result<Self> {
        let text = |bytes| String::from_utf8(bytes).context("not UTF-8");
        Ok(Self { code: ended.status.code(), stdout: text(ended.stdout)?, stderr: text(ended.stderr)? })
    }

    pub(super) fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    pub(super) fn both_streams(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    pub(super) fn status(&self) -> String {
        self.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string())
    }
}

impl<'a> GpuCommand<'a> {
    /// A command that runs the program in the repository's root.
    pub(super) fn of(run: &Run, program: &Path) -> Self {
        let (program, folder) = (program.to_owned(), run.root.clone());
        Self { program, arguments: Vec::new(), variables: Vec::new(), folder }
    }

    pub(super) fn arguments(mut self, arguments: &[&'a str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Sets an environment variable of the program.
    pub(super) fn variable(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets a variable that [`variable`](Self::variable) overrides.
    pub(super) fn variable_by_default(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.variables.insert(0, (name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Runs the program. The simulated driver writes its log to `log`.
    pub(super) fn run(&self, run: &Run, log: &Path) -> Result<ProgramOutput> {
        // A command runs in the folder that the shell is in when it starts.
        let _there = run.shell.push_dir(&self.folder);
        ProgramOutput::of(output(self.command(run, log)?)?)
    }

    /// The same as a command of the shell, which runs in the shell's folder.
    pub(super) fn command<'r>(&self, run: &'r Run, log: &Path) -> Result<Cmd<'r>> {
        let Self { program, arguments, variables, folder: _ } = self;
        let command = cmd!(run.shell, "{program} {arguments...}").envs(run.simulated_gpu()?.variables());
        Ok(command.env("MEMTRACE_CUSIM_LOG", log).env("RUST_BACKTRACE", "0").envs(variables.iter().cloned()))
    }
}
