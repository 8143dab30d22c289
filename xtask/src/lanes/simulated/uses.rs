//! The lane `uses`: how much is known about the uses of memory in models of candle-transformers.

use anyhow::Result;

use super::command::GpuCommand;
use super::{builds, changes};
use crate::checks::Checks;
use crate::lane::Run;
use crate::programs::Programs;

const MODELS: usize = 9;
const PLANTED: usize = 7;

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    let programs = builds::linked(run, &["--bin=uses"])?;
    coverage(run, &programs, &mut checks)?;
    planted(run, &programs, &mut checks)?;
    changes::run(run, &mut checks)?;
    checks.end()
}

/// The program compares each row with the least share that must be known.
fn coverage(run: &Run, programs: &Programs, checks: &mut Checks) -> Result<()> {
    let said = output(run, programs, &[], checks)?;
    checks.equal("uses: models", rows(&said), MODELS);
    for line in said.lines().filter(|line| line.contains("is not simulated")) {
        checks.fail(&format!("uses: calls a function that is not simulated: {line}"));
    }
    Ok(())
}

/// The program compares the findings with the faults that were planted.
fn planted(run: &Run, programs: &Programs, checks: &mut Checks) -> Result<()> {
    let said = output(run, programs, &["planted"], checks)?;
    checks.equal("uses: programs with planted waste", rows(&said), PLANTED);
    Ok(())
}

/// Prints the program's output, and returns it.
fn output(run: &Run, programs: &Programs, arguments: &[&str], checks: &mut Checks) -> Result<String> {
    let command = GpuCommand::of(run, programs.path("uses")?).arguments(arguments);
    let ended = command.run(run, &run.scratch("uses")?.join("log"))?;
    print!("{}", ended.stdout);
    checks.exit("uses", ended.status(), ended.succeeded(), &ended.both_streams());
    Ok(ended.both_streams())
}

/// Rows of a table, without its head.
fn rows(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("| ")).count().saturating_sub(1)
}
