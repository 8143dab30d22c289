//! Formatting, clippy, documentation, import cycles and the repository's address.

use anyhow::Result;
use xshell::cmd;

use super::{address, circles, cited, tutorial};
use crate::lane::Run;

/// Packages outside the workspace, because they need other settings, or dependencies that would slow down every build.
const OUTSIDE: [&str; 4] = ["benches/peers", "examples/server", "fuzz", "tests/loom"];

pub(crate) fn run(run: &Run) -> Result<String> {
    circles::run(run)?;
    address::run(run)?;
    cited::run(run)?;
    tutorial::run(run)?;
    let shell = &run.shell;
    cmd!(shell, "cargo fmt --all --check").run()?;
    for package in OUTSIDE {
        cmd!(shell, "cargo fmt --manifest-path {package}/Cargo.toml --check").run()?;
    }
    cmd!(shell, "cargo clippy --workspace --all-targets --quiet -- -D warnings").run()?;
    cmd!(shell, "cargo clippy --no-default-features --quiet -- -D warnings").run()?;
    if run.is_full() {
        for package in OUTSIDE {
            cmd!(shell, "cargo clippy --manifest-path {package}/Cargo.toml --quiet -- -D warnings").run()?;
        }
    }
    let _warnings = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --no-deps --quiet --features candle,cudarc").run()?;
    cmd!(shell, "cargo doc --workspace --no-deps --quiet").run()?;
    Ok("no warning, no import cycle, one place for the address".to_owned())
}
