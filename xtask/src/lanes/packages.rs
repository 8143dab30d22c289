//! Feature sets of the packages, and licences of their dependencies.

use std::path::{Path, PathBuf};

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

/// Checks licences and sources, and advisories if their database can be had: from its repository, or from a clone of
/// it that `MEMTRACE_ADVISORIES` names.
pub(crate) fn licences(run: &Run) -> Result<String> {
    let deny = tool(run, "cargo-deny", "0.20", &[])?;
    cmd!(run.shell, "{deny} --workspace --all-features --offline check bans licenses sources").run()?;
    Ok(format!("bans, licences and sources allowed; {}", advisories(run, &deny)?))
}

fn advisories(run: &Run, deny: &Path) -> Result<&'static str> {
    let (shell, configuration) = (&run.shell, run.scratch("deny")?.join("deny.toml"));
    let clone = std::env::var("MEMTRACE_ADVISORIES").ok();
    let of_clone = clone.map_or_else(String::new, |folder| format!("[advisories]\ndb-urls = [\"file://{folder}\"]\n"));
    shell.write_file(&configuration, format!("[graph]\nall-features = true\n{of_clone}"))?;
    // Without its database, the command cannot say whether there are any.
    if cmd!(shell, "{deny} --workspace fetch --config {configuration} db").ignore_stderr().run().is_err() {
        return Ok("advisories NOT CHECKED: no database");
    }
    cmd!(shell, "{deny} --workspace check --config {configuration} --disable-fetch advisories").run()?;
    Ok("no advisory")
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
