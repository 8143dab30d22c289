//! Fuzzing of every reader, for some minutes. tests/hostile.rs replays the seeds in seconds.

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::packages::tool;
use crate::lane::Run;

/// The time for each target; MEMTRACE_FUZZ_SECONDS overrides it.
const SECONDS: u32 = 120;

pub(crate) fn run(run: &Run) -> Result<String> {
    let shell = &run.shell;
    let fuzz = tool(run, "cargo-fuzz", "0.13", &[])?;
    let seconds = std::env::var("MEMTRACE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    cmd!(shell, "cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds").run()?;
    cmd!(shell, "tar -xzf fuzz/corpus.tar.gz -C fuzz --skip-old-files").run()?;
    let targets = cmd!(shell, "{fuzz} fuzz list").read()?;
    ensure!(!targets.is_empty(), "there is no fuzz target");
    // cargo-fuzz needs a nightly compiler.
    let _nightly = shell.push_env("RUSTUP_TOOLCHAIN", "nightly");
    let _cargo = shell.push_env("CARGO", "cargo");
    for target in targets.lines() {
        let time = format!("-max_total_time={seconds}");
        // Debug assertions make an overflow a crash. No input of 64 KiB takes five seconds, unless the machine is busy.
        cmd!(shell, "{fuzz} fuzz run --debug-assertions {target} -- {time} -timeout=60 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536 -print_final_stats=1")
            .run()
            .with_context(|| format!("fuzz target {target}"))?;
    }
    Ok(format!("{} targets, {seconds} s each", targets.lines().count()))
}
