//! The tests on aarch64, which QEMU's user mode emulates on this machine, and a comparison of recordings of the same
//! programs on both. This shows what the code does, but not the effects of a processor's memory order, which loom
//! checks.

mod both;
mod instructions;
mod left_out;
pub(super) mod machine;

use anyhow::Result;
use xshell::cmd;

use self::left_out::LEFT_OUT;
use self::machine::Emulated;
use super::driver;
use crate::lane::Run;

/// Takes an hour and a half if nothing is built yet. The smallest form takes a minute.
pub(crate) fn run(run: &Run) -> Result<String> {
    if !run.is_full() {
        return smoke(run);
    }
    let emulated = Emulated::prepare(run)?;
    let recordings = both::run(run, &emulated)?;
    let driver = driver::emulated(run, &emulated)?;
    let (instructions, optimised) = (instructions::run(run, &emulated)?, optimised(run, &emulated)?);
    let tests = tests(run, &emulated)?;
    Ok(format!("{tests}; optimised: {optimised}; recordings: {recordings}; NVIDIA's driver: {driver}; {instructions}"))
}

/// Runs C programs under the preload library, which is built in a minute.
fn smoke(run: &Run) -> Result<String> {
    let Some(emulated) = prepare(run)? else {
        return Ok("NOT RUN: only root installs what emulates it".to_owned());
    };
    let tests = cmd!(run.shell, "cargo test -p memtrace-preload --test heap --test programs");
    super::tests::checked(emulated.cargo(tests), &LEFT_OUT)
}

/// `None` if only root could prepare it.
pub(crate) fn prepare(run: &Run) -> Result<Option<Emulated<'_>>> {
    match Emulated::prepare(run) {
        Err(_) if cmd!(run.shell, "id -u").read()? != "0" => Ok(None),
        prepared => prepared.map(Some),
    }
}

/// Runs the tests that depend on the compiler's choice of frames.
fn optimised(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    let tests = cmd!(run.shell, "cargo test --release -p candle-memtrace --lib --test checked_stacks");
    super::tests::checked(emulated.cargo(tests), &LEFT_OUT)
}

/// Runs all tests except those of xtask, which is for this machine.
fn tests(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    LEFT_OUT.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
    let tests = emulated.cargo(cmd!(run.shell, "cargo test --workspace --exclude xtask --no-fail-fast"));
    // QEMU keeps data on each page that was ever mapped. For other threads than the first, the C library maps and
    // unmaps heaps of 64 MiB each.
    let tests = tests.env("MALLOC_ARENA_MAX", "1");
    Ok(format!("{}, {} left out", super::tests::checked(tests, &LEFT_OUT)?, LEFT_OUT.len()))
}
