//! Feature sets of the packages, and licences of their dependencies.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use crate::lane::Run;

/// Runs clippy on every feature set without `cuda`. That feature needs a toolkit, and the lane `simulated` builds it.
pub(crate) fn features(run: &Run) -> Result<String> {
    let hack = tool(run, "cargo-hack", "0.6", &[])?;
    let shell = &run.shell;
    cmd!(shell, "{hack} hack clippy --quiet --package candle-memtrace --feature-powerset --exclude-features cuda,default --group-features flamegraph,gzip,metrics,signals -- -D warnings").run()?;
    cmd!(shell, "{hack} hack clippy --quiet --package memtrace-core --feature-powerset --exclude-features default -- -D warnings").run()?;
    Ok("every feature set without cuda".to_owned())
}

/// Checks licences and sources, and advisories if their database can be fetched.
pub(crate) fn licences(run: &Run) -> Result<String> {
    let (shell, deny) = (&run.shell, tool(run, "cargo-deny", "0.20", &[])?);
    cmd!(shell, "{deny} --workspace --all-features --offline check bans licenses sources").run()?;
    if cmd!(shell, "{deny} fetch db").ignore_stderr().run().is_err() {
        return Ok("bans, licences and sources allowed; advisories NOT CHECKED: no database".to_owned());
    }
    cmd!(shell, "{deny} --workspace --all-features --offline check advisories").run()?;
    Ok("bans, licences and sources allowed; no advisory but those that deny.toml names".to_owned())
}

/// A cargo subcommand: the one on PATH, or one that is built once into the cache.
pub(crate) fn tool(run: &Run, name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let shell = &run.shell;
    if cmd!(shell, "{name} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok() {
        return Ok(name.into());
    }
    let tools = run.cache()?.join("tools");
    let program = tools.join("bin").join(name);
    if !program.exists() {
        // The target folder is large and never used again.
        let built = run.scratch(name)?;
        cmd!(shell, "cargo install --quiet --locked --root {tools} --target-dir {built} --version ^{version} {options...} {name}")
            .run()?;
        shell.remove_path(built)?;
    }
    Ok(program)
}
