//! The tests that cargo runs: the README's command, models of concurrency, random programs at length.

use anyhow::{Context, Result};
use xshell::cmd;

use crate::lane::Run;

/// Its last lines are cargo's own.
pub(crate) fn run(run: &Run) -> Result<String> {
    let command = run.readme_command("tests")?;
    println!("$ {command}");
    let mut words = command.split(' ');
    let program = words.next().context("the README's command is empty")?;
    cmd!(run.shell, "{program} {words...}").run()?;
    Ok(format!("`{command}` passes"))
}

/// Every order in which threads may take their steps.
pub(crate) fn loom(run: &Run) -> Result<String> {
    let target = run.target.join("loom");
    let test =
        cmd!(run.shell, "cargo test --quiet --release --manifest-path tests/loom/Cargo.toml --target-dir {target}");
    test.env("RUSTFLAGS", "--cfg loom").run()?;
    Ok("every order of steps".to_owned())
}

/// Tests of random programs with twenty times as many of them, and a thousand runs of tests side by side.
pub(crate) fn stress(run: &Run) -> Result<String> {
    let shell = &run.shell;
    let random = cmd!(
        shell,
        "cargo test --quiet -p candle-memtrace -p memtrace-cusim --lib --test recording --test hostile --test model"
    );
    random.env("MEMTRACE_CASES", "20").run()?;
    cmd!(shell, "cargo test --quiet --test parallel").env("MEMTRACE_TEST_RUNS", "1000").run()?;
    Ok("twenty times as many random programs; 64 tests side by side, a thousand times".to_owned())
}
