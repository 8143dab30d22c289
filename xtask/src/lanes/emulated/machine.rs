//! This machine, set up to build and run programs for the other kind.

use std::path::PathBuf;

use anyhow::{Error, Result};
use memtrace_runner::kit::SimulatedGpu;
use xshell::{Cmd, cmd};

use crate::lane::Run;
use crate::machine::AARCH64;

/// The processors of these machines have half-precision arithmetic. Without optimization, the crate `gemm` needs this
/// flag.
const FLAGS: &str = "-C target-feature=+fp16";

pub(crate) struct Emulated<'a> {
    run: &'a Run,
    /// Compilers for tests that compile C.
    bin: PathBuf,
}

impl<'a> Emulated<'a> {
    pub(super) fn prepare(run: &'a Run) -> Result<Self> {
        let folder = run.scratch("emulated")?;
        cmd!(run.shell, "scripts/emulate-aarch64 {folder}").run()?;
        Ok(Self { run, bin: folder.join("bin") })
    }

    pub(super) fn target(&self) -> PathBuf {
        self.run.target.join("emulated")
    }

    /// A command that builds for that machine.
    pub(crate) fn cargo<'b>(&self, command: Cmd<'b>) -> Cmd<'b> {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap_or_default());
        AARCH64
            .builds(command)
            .env("CARGO_TARGET_DIR", self.target())
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("env PATH={path}"))
    }

    /// A simulated GPU of that machine.
    pub(super) fn simulated_gpu(&self) -> Result<SimulatedGpu> {
        SimulatedGpu::of(&AARCH64.kit(self.run)?, &self.run.target.join("emulated-simulated")).map_err(Error::msg)
    }
}
