//! The lane `ranks`: a Llama in two processes on two simulated GPUs, over the stand-in for NCCL.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Result;
use xshell::cmd;

use super::builds;
use super::command::{GpuCommand, ProgramOutput};
use crate::checks::Checks;
use crate::lane::Run;
use crate::programs::Programs;

const RANKS: [&str; 2] = ["0", "1"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let tool = Programs::built_by(cmd!(run.shell, "cargo build --package cargo-memtrace"))?;
    let (tool, program) = (tool.path("cargo-memtrace")?, builds::linked(run, &["--bin=candle-ranks"])?);
    let (folder, mut checks) = (run.scratch("ranks")?, Checks::default());
    both(run, program.path("candle-ranks")?, &folder, &mut checks)?;
    let text = cmd!(run.shell, "{tool} memtrace report {folder}").quiet().read()?;
    println!("{text}");
    checks.end()
}

/// Runs the ranks side by side.
fn both(run: &Run, program: &Path, folder: &Path, checks: &mut Checks) -> Result<()> {
    let out = folder.display().to_string();
    let start = |rank: &str| {
        let command = GpuCommand::of(run, program).arguments(&[&out]).variable("RANK", rank);
        let command = command.variable("WORLD_SIZE", RANKS.len()).variable("MEMTRACE_CUSIM_DEVICES", RANKS.len());
        let mut command = Command::from(command.command(run, &folder.join(format!("rank-{rank}.log")))?);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    };
    let running: Vec<Child> = RANKS.into_iter().map(start).collect::<Result<_>>()?;
    for (rank, running) in RANKS.into_iter().zip(running) {
        let (name, ended) = (format!("rank {rank}"), ProgramOutput::of(running.wait_with_output()?)?);
        checks.exit(&name, ended.status(), ended.succeeded(), &ended.both_streams());
        checks.number(&name, &ended.stdout, 1..=u64::MAX, " records equal the driver");
    }
    Ok(())
}
