//! Compares an unmodified program alone and under the preloaded library. Exit status and output must be the same, and
//! the recording must equal the simulator's log.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::command::{GpuCommand, ProgramOutput};
use super::text::{difference, timeless};
use super::{builds, recording};
use crate::checks::{Checks, last_lines};
use crate::lane::Run;
use crate::lanes::report::JsonReport;

pub(super) struct Preloaded<'r> {
    pub(super) run: &'r Run,
    pub(super) checks: Checks,
    /// The folder of programs and libraries that build without a toolkit.
    pub(super) loaded: PathBuf,
    /// Output files of the last run.
    out: PathBuf,
}

/// Exit statuses that a check accepts. The status under the library must be the same as alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum AllowedExit {
    Success,
    /// Status 0, or status 1 with the program's own error message.
    SuccessOrError,
    Any,
}

impl<'r> Preloaded<'r> {
    pub(super) fn new(run: &'r Run) -> Result<Self> {
        let loaded = builds::loaded(run)?;
        Ok(Self { run, checks: Checks::default(), loaded, out: run.scratch("unchanged")? })
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    /// A file of the last run.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.out.join(file)
    }

    pub(super) fn report(&self, report: &str) -> Result<JsonReport> {
        JsonReport::read(&self.path(report))
    }

    /// Runs the command alone and under the library, and compares exit status and output.
    pub(super) fn both(&mut self, name: &str, command: &GpuCommand<'_>, allowed: AllowedExit) -> Result<ProgramOutput> {
        let (alone, ended) = self.same_exit(name, command, allowed)?;
        self.same(name, "output", &ended.stdout, &alone.stdout);
        self.same(name, "errors", &ended.stderr, &alone.stderr);
        Ok(ended)
    }

    /// Runs the command alone and under the library, and compares only the exit status.
    pub(super) fn same_exit(
        &mut self,
        name: &str,
        command: &GpuCommand<'_>,
        allowed: AllowedExit,
    ) -> Result<(ProgramOutput, ProgramOutput)> {
        let alone = command.run(self.run, &self.log())?;
        let ended = self.preloaded(command)?;
        let is_allowed = match allowed {
            AllowedExit::Success => ended.code == Some(0),
            AllowedExit::SuccessOrError => matches!(ended.code, Some(0 | 1)),
            AllowedExit::Any => true,
        };
        let status = format!("{}, alone with {}", ended.status(), alone.status());
        self.checks.exit(name, status, is_allowed && ended.code == alone.code, &ended.stderr);
        Ok((alone, ended))
    }

    /// Runs the command under the library, which writes report.json beside the simulator's log.
    pub(super) fn preloaded(&self, command: &GpuCommand<'_>) -> Result<ProgramOutput> {
        self.run.shell.remove_path(&self.out)?;
        self.run.shell.create_dir(&self.out)?;
        self.under_library(command, "report.json")
    }

    fn under_library(&self, command: &GpuCommand<'_>, report: &str) -> Result<ProgramOutput> {
        let library = self.loaded.join("libmemtrace_preload.so");
        // A post-mortem would be printed among the program's own errors.
        let command = command.clone().variable_by_default("MEMTRACE_DUMP_ON_OOM", 0);
        let command = command.variable("LD_PRELOAD", library.display());
        command.variable("MEMTRACE_OUT", self.path(report).display()).run(self.run, &self.log())
    }

    fn same(&mut self, name: &str, what: &str, ours: &str, alone: &str) {
        match difference(&timeless(ours), &timeless(alone)) {
            None => self.checks.ok(&format!("{name}: same {what}")),
            Some(difference) => self.checks.fail(&format!("{name}: other {what}: {difference}")),
        }
    }

    /// Checks that the report equals the simulator's log. With a source, all lines of the report must be in that file.
    pub(super) fn recorded(&mut self, name: &str, source: Option<&str>, report: &str) {
        let result = recording::check(&self.path(report), &self.log(), source);
        self.checks.result(&format!("{name}: as in the simulator's log"), result);
    }

    /// [`both`](Self::both) and [`recorded`](Self::recorded).
    pub(super) fn both_recorded(
        &mut self,
        name: &str,
        command: &GpuCommand<'_>,
        allowed: AllowedExit,
        source: Option<&str>,
    ) -> Result<()> {
        self.both(name, command, allowed)?;
        self.recorded(name, source, "report.json");
        Ok(())
    }

    /// Checks that the library printed and wrote nothing.
    pub(super) fn silent(&mut self, name: &str, ended: &ProgramOutput) {
        let is_silent = !ended.stderr.contains("memtrace") && !self.path("report.json").exists();
        self.checks.that(&format!("{name}: is left alone"), is_silent);
    }

    /// Checks that the text report has no notes, which means that the recording is complete.
    pub(super) fn no_notes(&mut self, name: &str, command: &GpuCommand<'_>) -> Result<()> {
        self.under_library(command, "report.txt")?;
        let report = self.path("report.txt");
        let text = std::fs::read_to_string(&report).with_context(|| format!("{name}: no {}", report.display()))?;
        let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
        if has_line("Still live") && !has_line("Notes") {
            self.checks.ok(&format!("{name}: a report without notes"));
        } else {
            self.checks.fail(&format!("{name}: a report with notes:\n{}", last_lines(&text)));
        }
        Ok(())
    }
}
