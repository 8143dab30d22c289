//! Platforms without CUDA's hooks, on which the heap is recorded. The sources are only checked for them; nothing runs
//! there.

use anyhow::Result;
use xshell::cmd;

use crate::lane::Run;

const LIBRARY: &[&str] = &["candle-memtrace", "memtrace-core"];
const WITH_THE_TOOL: &[&str] = &["candle-memtrace", "memtrace-core", "cargo-memtrace"];

/// On Unix platforms the tool is checked, too, because it starts programs as Unix does.
const PLATFORMS: [(&str, &[&str]); 5] = [
    ("x86_64-unknown-linux-musl", WITH_THE_TOOL),
    ("aarch64-unknown-linux-musl", WITH_THE_TOOL),
    ("aarch64-apple-darwin", WITH_THE_TOOL),
    ("x86_64-apple-darwin", WITH_THE_TOOL),
    ("x86_64-pc-windows-msvc", LIBRARY),
];

pub(crate) fn run(run: &Run) -> Result<String> {
    let shell = &run.shell;
    for (target, packages) in PLATFORMS {
        cmd!(shell, "rustup --quiet target add {target}").run()?;
        let packages = packages.iter().flat_map(|package| ["--package", package]);
        let check = cmd!(shell, "cargo check --quiet {packages...} --target {target}");
        check.env("RUSTFLAGS", "-D warnings").env("CARGO_TARGET_DIR", run.target.join("platforms")).run()?;
    }
    Ok(format!("{} platforms", PLATFORMS.len()))
}
