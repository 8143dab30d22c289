//! A program that was not changed, alone and under the preloaded library: the same end, output and errors, and a
//! recording that equals the simulator's own account.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::gpu::{Call, Ended};
use super::report::Report;
use super::text::{difference, timeless};
use super::{builds, recording};
use crate::checks::{Checks, last_lines};
use crate::lane::Run;

pub(super) struct Preloaded<'r> {
    pub(super) run: &'r Run,
    pub(super) checks: Checks,
    /// Folder of what is linked against the driver or needs no toolkit.
    pub(super) loaded: PathBuf,
    /// Files of the last run.
    out: PathBuf,
}

/// What a program may end with.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Well,
    /// Or with an error that it tells itself.
    WellOrBadly,
}

impl<'r> Preloaded<'r> {
    pub(super) fn new(run: &'r Run) -> Result<Self> {
        let loaded = builds::loaded(run)?;
        Ok(Self { run, checks: Checks::default(), loaded, out: run.scratch("unchanged")? })
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    /// A file that the last run left.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.out.join(file)
    }

    pub(super) fn report(&self, report: &str) -> Result<Report> {
        Report::read(&self.path(report))
    }

    /// Alone and under the library.
    pub(super) fn both(&mut self, name: &str, call: &Call<'_>, end: End) -> Result<Ended> {
        let alone = call.run(self.run, &self.log())?;
        let ended = self.preloaded(call)?;
        self.ends(name, &ended, &alone, end);
        self.same(name, "output", &ended.output, &alone.output);
        self.same(name, "errors", &ended.errors, &alone.errors);
        Ok(ended)
    }

    /// The same without looking at what it says, which has another order each time.
    pub(super) fn ends_as_alone(&mut self, name: &str, call: &Call<'_>) -> Result<()> {
        let alone = call.run(self.run, &self.log())?;
        let ended = self.preloaded(call)?;
        let said = format!("{name}: ends with {}", alone.how());
        match ended.code == alone.code {
            true => self.checks.ok(&said),
            false => self.checks.fail(&format!(
                "{said}, under the library with {}:\n{}",
                ended.how(),
                last_lines(&ended.errors)
            )),
        }
        Ok(())
    }

    /// Under the library, which leaves report.json beside the simulator's log.
    pub(super) fn preloaded(&self, call: &Call<'_>) -> Result<Ended> {
        self.run.shell.remove_path(&self.out)?;
        self.run.shell.create_dir(&self.out)?;
        self.under_library(call, "report.json")
    }

    fn under_library(&self, call: &Call<'_>, report: &str) -> Result<Ended> {
        let library = self.loaded.join("libmemtrace_preload.so");
        // What is refused would be explained among the program's own errors.
        let call =
            call.clone().variable_by_default("MEMTRACE_DUMP_ON_OOM", 0).variable("LD_PRELOAD", library.display());
        call.variable("MEMTRACE_OUT", self.path(report).display()).run(self.run, &self.log())
    }

    fn ends(&mut self, name: &str, ended: &Ended, alone: &Ended, end: End) {
        let is_allowed = match end {
            End::Well => ended.code == Some(0),
            End::WellOrBadly => matches!(ended.code, Some(0 | 1)),
        };
        match is_allowed && ended.code == alone.code {
            true => self.checks.ok(&format!("{name}: ends with {}", ended.how())),
            false => {
                let (how, alone, errors) = (ended.how(), alone.how(), last_lines(&ended.errors));
                self.checks.fail(&format!("{name}: ends with {how}, alone with {alone}:\n{errors}"));
            }
        }
    }

    fn same(&mut self, name: &str, what: &str, ours: &str, alone: &str) {
        match difference(&timeless(ours), &timeless(alone)) {
            None => self.checks.ok(&format!("{name}: same {what}")),
            Some(difference) => self.checks.fail(&format!("{name}: other {what}: {difference}")),
        }
    }

    /// The report equals the simulator's account; all its lines are in the source, if one is named.
    pub(super) fn recorded(&mut self, name: &str, source: Option<&str>, report: &str) {
        let said = recording::check(&self.path(report), &self.log(), source);
        self.checks.result(&format!("{name}: as the simulator has it"), said);
    }

    /// Both, and the recording of one report.
    pub(super) fn both_recorded(&mut self, name: &str, call: &Call<'_>, end: End, source: Option<&str>) -> Result<()> {
        self.both(name, call, end)?;
        self.recorded(name, source, "report.json");
        Ok(())
    }

    /// The library said nothing and wrote nothing.
    pub(super) fn silent(&mut self, name: &str, ended: &Ended) {
        let is_silent = !ended.errors.contains("memtrace") && !self.path("report.json").exists();
        self.checks.that(&format!("{name}: is left alone"), is_silent);
    }

    /// The report as text has no notes: nothing was unseen.
    pub(super) fn no_notes(&mut self, name: &str, call: &Call<'_>) -> Result<()> {
        self.under_library(call, "report.txt")?;
        let report = self.path("report.txt");
        let text = std::fs::read_to_string(&report).with_context(|| format!("{name}: no {}", report.display()))?;
        let begins = |start: &str| text.lines().any(|line| line.starts_with(start));
        match begins("Still live") && !begins("Notes") {
            true => self.checks.ok(&format!("{name}: a report without notes")),
            false => self.checks.fail(&format!("{name}: a report with notes:\n{}", last_lines(&text))),
        }
        Ok(())
    }
}
