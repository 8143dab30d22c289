//! The tests on aarch64, which QEMU's user mode runs on this machine, and what the same programs leave in recordings there and
//! here. It shows what the code does, not what a processor's memory order does to it: that is loom's.

mod both;
mod instructions;
mod left_out;
pub(super) mod machine;

use anyhow::{Result, ensure};
use xshell::{Cmd, cmd};

use self::left_out::LEFT_OUT;
use self::machine::Emulated;
use super::driver;
use crate::lane::{Run, output};

pub(crate) fn run(run: &Run) -> Result<String> {
    let emulated = Emulated::prepare(run)?;
    let recordings = both::run(run, &emulated)?;
    let done = format!("recordings: {recordings}; NVIDIA's driver: {}", driver::emulated(run, &emulated)?);
    if !run.is_full() {
        return Ok(done);
    }
    // An hour.
    Ok(format!("{done}; {}; {}", instructions::run(run, &emulated)?, tests(run, &emulated)?))
}

/// But those of xtask, which is for this machine.
fn tests(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    LEFT_OUT.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
    let left_out = LEFT_OUT.iter().flat_map(|(name, _)| ["--skip", name]);
    let tests = emulated.cargo(cmd!(run.shell, "cargo test --workspace --exclude xtask --no-fail-fast"));
    passed(tests.arg("--").args(left_out))
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
