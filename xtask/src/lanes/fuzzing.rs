//! Fuzzers over every reader, for some minutes; tests/hostile.rs replays their seeds in seconds.

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::packages::tool;
use crate::lane::Run;

/// For each target. MEMTRACE_FUZZ_SECONDS says otherwise.
const SECONDS: u32 = 120;

pub(crate) fn run(run: &Run) -> Result<String> {
    let shell = &run.shell;
    let fuzz = tool(run, "cargo-fuzz", "0.13")?;
    let seconds = std::env::var("MEMTRACE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    cmd!(shell, "cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds").run()?;
    let targets = cmd!(shell, "{fuzz} fuzz list").read()?;
    ensure!(!targets.is_empty(), "there is no fuzz target");
    // cargo-fuzz needs what only a nightly compiler has.
    let _nightly = shell.push_env("RUSTUP_TOOLCHAIN", "nightly");
    let _cargo = shell.push_env("CARGO", "cargo");
    for target in targets.lines() {
        fuzz_target(run, target, seconds).with_context(|| format!("fuzz target {target}"))?;
    }
    Ok(format!("{} targets, {seconds} s each", targets.lines().count()))
}

/// Debug assertions, because an overflow is a defect. Five seconds are a lot for 64 KiB.
fn fuzz_target(run: &Run, target: &str, seconds: u32) -> Result<()> {
    let fuzz = tool(run, "cargo-fuzz", "0.13")?;
    let time = format!("-max_total_time={seconds}");
    cmd!(run.shell, "{fuzz} fuzz run --debug-assertions {target} -- {time} -timeout=5 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536 -print_final_stats=1").run()?;
    Ok(())
}
