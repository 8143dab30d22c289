//! The lane `uses`: how much is known about the uses of memory in models of candle-transformers.

use anyhow::Result;

use super::builds;
use super::command::GpuCommand;
use crate::checks::Checks;
use crate::lane::Run;

const MODELS: usize = 9;

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    coverage(run, &mut checks)?;
    checks.end()
}

/// The program compares each row with the least that must be known.
fn coverage(run: &Run, checks: &mut Checks) -> Result<()> {
    let programs = builds::linked(run, &["--bin=uses"])?;
    let ended = GpuCommand::of(run, programs.path("uses")?).run(run, &run.scratch("uses")?.join("log"))?;
    let said = ended.both_streams();
    print!("{}", ended.stdout);
    checks.exit("uses", ended.status(), ended.succeeded(), &said);
    let rows = ended.stdout.lines().filter(|line| line.starts_with("| ")).count().saturating_sub(1);
    checks.equal("uses: models", rows, MODELS);
    for line in said.lines().filter(|line| line.contains("is not simulated")) {
        checks.fail(&format!("uses: calls a function that is not simulated: {line}"));
    }
    Ok(())
}
