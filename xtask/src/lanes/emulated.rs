//! The tests on aarch64, which QEMU's user mode runs on this machine, and what the same programs leave in recordings there and
//! here. It shows what the code does, not what a processor's memory order does to it: that is loom's.

mod both;
mod left_out;

use std::path::PathBuf;

use anyhow::{Error, Result, ensure};
use memtrace_runner::kit::{Kit, SimulatedGpu};
use xshell::{Cmd, cmd};

use self::left_out::LEFT_OUT;
use super::driver;
use crate::lane::{Run, output};

const TARGET: &str = "aarch64-unknown-linux-gnu";
pub(crate) const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// Processors of the machines that this is for have half-precision arithmetic. The crate `gemm` needs it where nothing is
/// optimised.
const FLAGS: &str = "-C target-feature=+fp16";
pub(crate) fn run(run: &Run) -> Result<String> {
    let emulated = Emulated::prepare(run)?;
    let done =
        format!("recordings: {}; NVIDIA's driver: {}", both::run(run, &emulated)?, driver::emulated(run, &emulated)?);
    // An hour.
    if run.is_full() { Ok(format!("{done}; {}", emulated.tests()?)) } else { Ok(done) }
}

/// This machine, ready to build and run programs for the other one.
pub(crate) struct Emulated<'a> {
    run: &'a Run,
    /// Compilers for tests that compile C.
    bin: PathBuf,
}

impl<'a> Emulated<'a> {
    fn prepare(run: &'a Run) -> Result<Self> {
        let folder = run.scratch("emulated")?;
        cmd!(run.shell, "scripts/emulate-aarch64 {folder}").run()?;
        Ok(Self { run, bin: folder.join("bin") })
    }

    fn target(&self) -> PathBuf {
        self.run.target.join("emulated")
    }

    /// A command that builds for that machine.
    pub(super) fn cargo<'b>(&self, command: Cmd<'b>) -> Cmd<'b> {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap_or_default());
        // Only programs for the other machine get its compiler: build scripts are programs of this one.
        command
            .args(["--target", TARGET])
            .env("CARGO_TARGET_DIR", self.target())
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
            .env("CC_aarch64_unknown_linux_gnu", COMPILER)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("env PATH={path}"))
    }

    /// A simulated GPU of that machine.
    fn simulated_gpu(&self) -> Result<SimulatedGpu> {
        let kit = Kit::of(&self.run.root).map_err(Error::msg)?.built_for(TARGET, COMPILER);
        SimulatedGpu::of(&kit, &self.run.target.join("emulated-simulated")).map_err(Error::msg)
    }

    /// But those of xtask, which is for this machine.
    fn tests(&self) -> Result<String> {
        LEFT_OUT.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
        let left_out = LEFT_OUT.iter().flat_map(|(name, _)| ["--skip", name]);
        let tests = self.cargo(cmd!(self.run.shell, "cargo test --workspace --exclude xtask --no-fail-fast"));
        passed(tests.arg("--").args(left_out))
    }
}

/// How many tests passed, of how many programs.
fn passed(tests: Cmd<'_>) -> Result<String> {
    let output = output(tests)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = said.lines().filter(|line| line.ends_with("... FAILED"));
    failed.for_each(|line| println!("FAIL  {line}"));
    let results = said.lines().filter_map(|line| line.strip_prefix("test result: ")?.split(". ").nth(1));
    let counts: Vec<usize> = results.filter_map(|result| result.split(' ').next()?.parse().ok()).collect();
    ensure!(output.status.success(), "{}", crate::lane::both_streams(&output));
    Ok(format!("{} tests in {} programs, {} left out", counts.iter().sum::<usize>(), counts.len(), LEFT_OUT.len()))
}
