//! The lane `runner`: tests through memtrace-runner, with cargo and with nextest, on a simulated GPU and with none.

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::{builds, text};
use crate::checks::{Checks, last_lines};
use crate::lane::{Run, output};

const SIMULATED: &[(&str, &str)] = &[("MEMTRACE_REQUIRE_GPU", "1"), ("MEMTRACE_CUSIM_MEMORY", "24GiB")];
const NONE: &[(&str, &str)] = &[("MEMTRACE_GPU", "real")];
const NONE_AND_REQUIRED: &[(&str, &str)] = &[("MEMTRACE_GPU", "real"), ("MEMTRACE_REQUIRE_GPU", "1")];
const REQUIRED: &str = "MEMTRACE_REQUIRE_GPU=1 asks for one";

pub(crate) fn run(run: &Run) -> Result<String> {
    builds::linked(run, &[])?;
    builds::loaded(run)?;
    let mut lane = Lane { run, checks: Checks::default() };
    lane.cargo_test()?;
    lane.cargo_run()?;
    lane.nextest()?;
    lane.side_by_side()?;
    lane.checks.end()
}

struct Lane<'r> {
    run: &'r Run,
    checks: Checks,
}

impl Lane<'_> {
    fn cargo_test(&mut self) -> Result<()> {
        let run = self.run;
        let test = || linked(run, &["cargo", "test"], "profile", "any_gpu", &[]);
        let said = self.ends("cargo test", true, test().envs(SIMULATED.iter().copied()))?;
        self.checks.says("cargo test", &said, "simulated GPU of 24 GiB (");
        self.begins_a_line("cargo test", &said, "test result: ok. 2 passed; 0 failed; 0 ignored");
        let name = "cargo test without a GPU";
        let said = self.ends(name, true, test().envs(NONE.iter().copied()))?;
        self.begins_a_line(name, &said, "test result: ok. 0 passed; 0 failed; 1 ignored");
        let name = "cargo test without a GPU that is required";
        let said = self.ends(name, false, test().envs(NONE_AND_REQUIRED.iter().copied()))?;
        self.checks.says(name, &said, REQUIRED);
        Ok(())
    }

    fn cargo_run(&mut self) -> Result<()> {
        let run = self.run;
        let loaded = || through_runner(run, cmd!(run.shell, "cargo run --quiet --package cudarc-loaded"));
        let name = "cargo run, the driver loaded";
        let said = self.ends(name, true, loaded().envs(SIMULATED.iter().copied()))?;
        text::line(&mut self.checks, name, &said, "that ends with \", 0 left over\"", |line| {
            line.ends_with(", 0 left over")
        });
        let name = "cargo run, the driver loaded, without a GPU";
        let said = self.ends(name, false, loaded().envs(NONE.iter().copied()))?;
        self.checks.says(name, &said, "no GPU (");
        Ok(())
    }

    fn nextest(&mut self) -> Result<()> {
        let run = self.run;
        let test = |options: &[&str]| linked(run, &["scripts/nextest"], "cargo-profile", "any_gpu", options);
        let said = self.ends("nextest", true, test(&[]).envs(SIMULATED.iter().copied()))?;
        self.checks.says("nextest", &said, "2 tests run: 2 passed, 0 skipped");
        let name = "nextest without a GPU";
        let said = self.ends(name, true, test(&["--no-tests=pass"]).envs(NONE.iter().copied()))?;
        self.checks.says(name, &said, "0 tests run: 0 passed, 1 skipped");
        let name = "nextest without a GPU that is required";
        let said = self.ends(name, false, test(&[]).envs(NONE_AND_REQUIRED.iter().copied()))?;
        self.checks.says(name, &said, REQUIRED);
        Ok(())
    }

    /// Sixty-four tests, and the one that starts them all in one process. All packages are named, as for `cargo test
    /// --workspace`: what that has built is not built again.
    fn side_by_side(&mut self) -> Result<()> {
        let shell = &self.run.shell;
        let options = ["--workspace", "--test=parallel", "--run-ignored=only"];
        let command = through_runner(self.run, cmd!(shell, "scripts/nextest {options...}"));
        let name = "side by side, nextest";
        let said = self.ends(name, true, command.envs(SIMULATED.iter().copied()))?;
        self.checks.says(name, &said, "65 tests run: 65 passed");
        Ok(())
    }

    /// Runs it; what it said.
    fn ends(&mut self, name: &str, well: bool, command: Cmd<'_>) -> Result<String> {
        let ended = output(command)?;
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        match ended.status.success() == well {
            true => self.checks.ok(&format!("{name}: ends with {}", ended.status)),
            false => self.checks.fail(&format!("{name}: ends with {}:\n{}", ended.status, last_lines(&said))),
        }
        Ok(said)
    }

    fn begins_a_line(&mut self, name: &str, said: &str, begin: &str) {
        let what = format!("that begins with {begin:?}");
        text::line(&mut self.checks, name, said, &what, |line| line.starts_with(begin));
    }
}

/// A test of the linked programs through the runner: built with the toolkit, into the folder that simulated GPUs have.
pub(super) fn linked<'r>(run: &'r Run, command: &[&str], profile: &str, test: &str, options: &[&str]) -> Cmd<'r> {
    let (shell, packages) = (&run.shell, builds::LINKED);
    let target = format!("--target-dir={}", builds::simulated_target(run).display());
    let profile = format!("--{profile}={}", builds::PROFILE);
    let test = format!("--test={test}");
    let with_toolkit = "eval \"$(scripts/stand-in-toolkit)\" && exec \"$@\"";
    through_runner(
        run,
        cmd!(
            shell,
            "bash -c {with_toolkit} with-toolkit {command...} {packages...} {target} {profile} {test} {options...}"
        ),
    )
}

/// A real GPU, if this machine has one, is hidden.
fn through_runner<'r>(run: &'r Run, command: Cmd<'r>) -> Cmd<'r> {
    let runner = run.target.join("debug/memtrace-runner");
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner).env("CUDA_VISIBLE_DEVICES", "")
}
