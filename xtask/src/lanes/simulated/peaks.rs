//! The lane `peaks`: peaks of ResNet-50 and Llama on the simulated GPU equal their baselines.

use std::path::Path;

use anyhow::{Result, ensure};

use super::builds;
use super::command::GpuCommand;
use super::runner::linked;
use crate::checks::Checks;
use crate::lane::{Run, said};

pub(crate) fn run(run: &Run) -> Result<String> {
    builds::linked(run, &["--test=peaks"])?;
    builds::loaded(run)?;
    let mut checks = Checks::default();
    let said = said(linked(run, ("cargo", &["test"]), "profile", "peaks", &[])?.env("MEMTRACE_GPU", "simulated"))?;
    checks.number("peaks", &said, 5..=99, " passed; 0 failed");
    checks.end()?;
    Ok("a training step and inference of ResNet-50, tokens and requests of Llama, a 7B model on 24 GB".to_owned())
}

/// Records the example llama on a simulated GPU.
pub(crate) fn llama(run: &Run, recording: &Path) -> Result<()> {
    let program = builds::linked(run, &["--example=llama"])?;
    let command = GpuCommand::of(run, program.path("llama")?).arguments(&["--device", "cuda", "--tokens", "8"]);
    recorded(run, "llama", &command.variable("MEMTRACE_OUT", recording.display()))
}

/// Records a model with the uses of device memory, some of which its last passes do not need.
pub(crate) fn model_with_uses(run: &Run, recording: &Path) -> Result<()> {
    let program = builds::linked(run, &["--bin=uses"])?;
    let out = format!("--out={}", recording.display());
    recorded(run, "uses", &GpuCommand::of(run, program.path("uses")?).arguments(&["llama-prefill", &out]))
}

fn recorded(run: &Run, name: &str, command: &GpuCommand<'_>) -> Result<()> {
    let ended = command.run(run, &run.scratch(name)?.join("log"))?;
    ensure!(ended.succeeded(), "{name}: {}\n{}", ended.status(), ended.both_streams());
    Ok(())
}
