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

/// The row for two buffers for each of two channels to the other rank, as the stand-in allocates them.
const BY_OPERATOR: &str = "24.00 MiB  85.5       4  6.000 MiB  (libnccl.so.2)";

const RANKS: [&str; 2] = ["0", "1"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let tool = Programs::built_by(cmd!(run.shell, "cargo build --package cargo-memtrace"))?;
    let (tool, program) = (tool.path("cargo-memtrace")?, builds::linked(run, &["--bin=candle-ranks"])?);
    let (folder, mut checks) = (run.scratch("ranks")?, Checks::default());
    both(run, program.path("candle-ranks")?, &folder, &mut checks)?;
    let all = cmd!(run.shell, "{tool} memtrace report {folder}").quiet().read()?;
    checks.says("both", &all, "2 ranks read. Worst: rank 0, ");
    checks.says("both", &all, "All 2 ranks that the launcher started are here.");
    let own = |line: &str| {
        line.contains("main.rs:31") && line.trim_start().starts_with("0 B  24.00 MiB  24.00 MiB  24.00 MiB")
    };
    checks.line("both", &all, "24 MiB of each rank where it joins the communicator", own);
    let one = cmd!(run.shell, "{tool} memtrace report {folder}/rank-1.memtrace").quiet().read()?;
    for line in
        [BY_OPERATOR, "24.00 MiB  25,165,824  live, taken by libnccl.so.2", "the buffers of each of its communicators;"]
    {
        checks.says("rank 1", &one, line);
    }
    run.shell.remove_path(folder.join("rank-1.memtrace"))?;
    let rest = cmd!(run.shell, "{tool} memtrace report {folder}").quiet().ignore_status().read()?;
    checks.says("one of two", &rest, "this is rank 0 of 2: each of the others has its own recording");
    checks.end()
}

/// Runs both ranks at the same time.
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
