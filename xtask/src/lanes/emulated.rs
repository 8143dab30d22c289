//! The tests on aarch64, which QEMU's user mode runs on this machine, and what the same programs leave in recordings there and
//! here. It shows what the code does, not what a processor's memory order does to it: that is loom's.

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

/// An hour and a half from nothing; the smallest form a minute.
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

/// C programs under the preload library, which is built in a minute.
fn smoke(run: &Run) -> Result<String> {
    let emulated = match Emulated::prepare(run) {
        Err(_) if cmd!(run.shell, "id -u").read()? != "0" => {
            return Ok("NOT RUN: only root installs what emulates it".to_owned());
        }
        prepared => prepared?,
    };
    let tests = cmd!(run.shell, "cargo test -p memtrace-preload --test heap --test programs");
    super::tests::checked(emulated.cargo(tests), &LEFT_OUT)
}

/// What depends on the compiler's choice of frames.
fn optimised(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    let tests = cmd!(run.shell, "cargo test --release -p candle-memtrace --lib --test checked_stacks");
    super::tests::checked(emulated.cargo(tests), &LEFT_OUT)
}

/// But those of xtask, which is for this machine.
fn tests(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    LEFT_OUT.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
    let tests = emulated.cargo(cmd!(run.shell, "cargo test --workspace --exclude xtask --no-fail-fast"));
    // QEMU keeps what it knows of each page that was ever mapped. The C library maps and unmaps the heaps of other threads than
    // the first, 64 MiB at a time.
    let tests = tests.env("MALLOC_ARENA_MAX", "1");
    Ok(format!("{}, {} left out", super::tests::checked(tests, &LEFT_OUT)?, LEFT_OUT.len()))
}
