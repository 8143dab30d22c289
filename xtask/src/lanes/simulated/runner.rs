//! The lane `runner`: memtrace-runner under cargo and nextest, on a simulated GPU and without a GPU.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::builds;
use crate::checks::Checks;
use crate::lane::{Run, both_streams, output};
use crate::lanes::packages::tool;

const SIMULATED: &[(&str, &str)] = &[("MEMTRACE_REQUIRE_GPU", "1"), ("MEMTRACE_CUSIM_MEMORY", "24GiB")];
const NONE: &[(&str, &str)] = &[("MEMTRACE_GPU", "real")];
const NONE_AND_REQUIRED: &[(&str, &str)] = &[("MEMTRACE_GPU", "real"), ("MEMTRACE_REQUIRE_GPU", "1")];
const REQUIRED: &str = "MEMTRACE_REQUIRE_GPU=1 requires one";

pub(crate) fn run(run: &Run) -> Result<String> {
    builds::linked(run, &[])?;
    builds::loaded(run)?;
    let nextest = tool(run, "cargo-nextest", "0.9.151", &["--no-default-features", "--features=default-no-update"])?;
    let mut lane = RunnerLane { run, nextest, checks: Checks::default() };
    lane.cargo_test()?;
    lane.cargo_run()?;
    lane.nextest()?;
    lane.side_by_side()?;
    lane.checks.end()
}

struct RunnerLane<'r> {
    run: &'r Run,
    nextest: PathBuf,
    checks: Checks,
}

impl RunnerLane<'_> {
    fn cargo_test(&mut self) -> Result<()> {
        let run = self.run;
        let test = || linked(run, ("cargo", &["test"]), "profile", "any_gpu", &[]);
        let said = self.ends("cargo test", true, test()?.envs(SIMULATED.iter().copied()))?;
        self.checks.says("cargo test", &said, "simulated GPU of 24 GiB (");
        self.checks.line_that_begins("cargo test", &said, "test result: ok. 2 passed; 0 failed; 0 ignored");
        let name = "cargo test without a GPU";
        let said = self.ends(name, true, test()?.envs(NONE.iter().copied()))?;
        self.checks.line_that_begins(name, &said, "test result: ok. 0 passed; 0 failed; 1 ignored");
        let name = "cargo test without a GPU that is required";
        let said = self.ends(name, false, test()?.envs(NONE_AND_REQUIRED.iter().copied()))?;
        self.checks.says(name, &said, REQUIRED);
        Ok(())
    }

    fn cargo_run(&mut self) -> Result<()> {
        let run = self.run;
        let loaded = || through_runner(run, cmd!(run.shell, "cargo run --quiet --package cudarc-loaded"));
        let name = "cargo run, the driver loaded";
        let said = self.ends(name, true, loaded().envs(SIMULATED.iter().copied()))?;
        self.checks.line_that_ends(name, &said, ", 0 left over");
        let name = "cargo run, the driver loaded, without a GPU";
        let said = self.ends(name, false, loaded().envs(NONE.iter().copied()))?;
        self.checks.says(name, &said, "no GPU (");
        Ok(())
    }

    fn nextest(&mut self) -> Result<()> {
        let (run, nextest) = (self.run, self.nextest.display().to_string());
        let test = |options: &[&str]| linked(run, (&nextest, &["nextest", "run"]), "cargo-profile", "any_gpu", options);
        let said = self.ends("nextest", true, test(&[])?.envs(SIMULATED.iter().copied()))?;
        self.checks.says("nextest", &said, "2 tests run: 2 passed, 0 skipped");
        let name = "nextest without a GPU";
        let said = self.ends(name, true, test(&["--no-tests=pass"])?.envs(NONE.iter().copied()))?;
        self.checks.says(name, &said, "0 tests run: 0 passed, 1 skipped");
        let name = "nextest without a GPU that is required";
        let said = self.ends(name, false, test(&[])?.envs(NONE_AND_REQUIRED.iter().copied()))?;
        self.checks.says(name, &said, REQUIRED);
        Ok(())
    }

    /// Runs 64 tests, each in its own process, and then the test that starts all of them in one process. `--workspace`
    /// reuses the build of `cargo test --workspace`.
    fn side_by_side(&mut self) -> Result<()> {
        let nextest = &self.nextest;
        let options = ["--workspace", "--test=parallel", "--run-ignored=only"];
        let command = through_runner(self.run, cmd!(self.run.shell, "{nextest} nextest run {options...}"));
        let name = "side by side, nextest";
        let said = self.ends(name, true, command.envs(SIMULATED.iter().copied()))?;
        self.checks.says(name, &said, "65 tests run: 65 passed");
        Ok(())
    }

    /// Runs a command that should succeed or fail, and returns its output.
    fn ends(&mut self, name: &str, success: bool, command: Cmd<'_>) -> Result<String> {
        let ended = output(command)?;
        let said = both_streams(&ended);
        self.checks.exit(name, ended.status, ended.status.success() == success, &said);
        Ok(said)
    }
}

/// Runs a test of the linked packages through the runner, built with the toolkit into the target folder for simulated
/// GPUs.
pub(super) fn linked<'r>(
    run: &'r Run,
    (program, command): (&str, &[&str]),
    profile: &str,
    test: &str,
    options: &[&str],
) -> Result<Cmd<'r>> {
    let profile = format!("--{profile}={}", builds::PROFILE);
    let test = format!("--test={test}");
    let options = [command, builds::LINKED, &[&profile, &test], options].concat();
    let command = cmd!(run.shell, "{program} {options...}").envs(run.simulated_gpu()?.to_build);
    Ok(through_runner(run, command))
}

/// Hides this machine's real GPUs.
fn through_runner<'r>(run: &'r Run, command: Cmd<'r>) -> Cmd<'r> {
    let runner = run.target.join("debug/memtrace-runner");
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner).env("CUDA_VISIBLE_DEVICES", "")
}
