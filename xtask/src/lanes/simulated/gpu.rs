//! A program's run on simulated GPUs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::builds;
use crate::lane::{Run, output};

/// What is run, and how.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    program: PathBuf,
    arguments: Vec<&'a str>,
    /// Of `scripts/with-simulated-gpu`.
    options: Vec<&'a str>,
    variables: Vec<String>,
    folder: PathBuf,
}

/// How it went.
#[derive(Debug)]
pub(super) struct Ended {
    /// None if a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Ended {
    pub(super) fn is_well(&self) -> bool {
        self.code == Some(0)
    }

    /// Both streams.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.output, self.errors)
    }

    pub(super) fn how(&self) -> String {
        self.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string())
    }
}

impl<'a> Call<'a> {
    /// It runs in the repository.
    pub(super) fn of(run: &Run, program: &Path) -> Self {
        let (program, folder) = (program.to_owned(), run.root.clone());
        Self { program, arguments: Vec::new(), options: Vec::new(), variables: Vec::new(), folder }
    }

    pub(super) fn arguments(mut self, arguments: &[&'a str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    pub(super) fn options(mut self, options: &[&'a str]) -> Self {
        self.options.extend(options);
        self
    }

    /// Of the program alone, not of the script before it.
    pub(super) fn variable(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.variables.push(format!("{name}={value}"));
        self
    }

    /// Unless another value is given with [`variable`](Self::variable).
    pub(super) fn variable_by_default(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.variables.insert(0, format!("{name}={value}"));
        self
    }

    pub(super) fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Runs it to its end. The simulator's account of it goes to the log.
    pub(super) fn run(&self, run: &Run, log: &Path) -> Result<Ended> {
        let (shell, script) = (&run.shell, builds::script(run));
        let Self { program, arguments, options, variables, folder } = self;
        let _there = shell.push_dir(folder);
        let command = cmd!(shell, "{script} {options...} --log {log} -- env {variables...} {program} {arguments...}");
        let ended = output(command.env("RUST_BACKTRACE", "0"))?;
        let text = |bytes| String::from_utf8(bytes).with_context(|| format!("{}: no UTF-8", program.display()));
        Ok(Ended { code: ended.status.code(), output: text(ended.stdout)?, errors: text(ended.stderr)? })
    }
}
