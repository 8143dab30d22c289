//! Reports of tests/programs/bare, built with and without debug information, names and link-time optimization (LTO).

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::cmd;

use crate::checks::Checks;
use crate::lane::{Run, said};

const ADVICE: &str = "debug = \"line-tables-only\"";
const NAMES_ONLY: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
    // The names stay the same, and the build takes half the time.
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
];

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    names_only(run, &mut checks)?;
    if run.is_full() {
        line_tables(run, &mut checks)?;
        v0_names(run, &mut checks)?;
        lto_and_abort(run, &mut checks)?;
    }
    checks.end()
}

fn line_tables(run: &Run, checks: &mut Checks) -> Result<()> {
    let text = build(run, "line-tables", &[("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")])?;
    checks.says("line tables", &text, &innermost_line(run)?);
    checks.that("line tables: no advice to enable them", !text.contains(ADVICE));
    checks.says("line tables", &text, "shortened: 1");
    checks.says("line tables", &text, "build-id bytes: 20");
    checks.that("line tables: addresses are relative to modules", !text.contains("module-relative addresses: 0"));
    Ok(())
}

fn names_only(run: &Run, checks: &mut Checks) -> Result<()> {
    let text = build(run, "names-only", &NAMES_ONLY)?;
    checks.says("names only", &text, "bare::layers::inner");
    checks.equal("names only: lines of advice", text.lines().filter(|line| line.contains(ADVICE)).count(), 1);
    let program = program(run, "names-only");
    let stripped = run.scratch("builds")?.join("stripped");
    // `strip = "symbols"` does the same.
    cmd!(run.shell, "strip --strip-all {program} -o {stripped}").quiet().run()?;
    let text = said(cmd!(run.shell, "{stripped}"))?;
    checks.says("stripped", &text, "code addresses have no name");
    checks.says("stripped", &text, "build-id bytes: 20");
    checks.says("stripped", &text, "4.000 MiB");
    Ok(())
}

fn v0_names(run: &Run, checks: &mut Checks) -> Result<()> {
    let flags = [&NAMES_ONLY[..], &[("RUSTFLAGS", "-C symbol-mangling-version=v0")]].concat();
    checks.says("v0 names", &build(run, "v0", &flags)?, "bare::layers::inner");
    Ok(())
}

fn lto_and_abort(run: &Run, checks: &mut Checks) -> Result<()> {
    let flags = [
        ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
        ("CARGO_PROFILE_RELEASE_LTO", "fat"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
        ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ];
    let text = build(run, "lto-abort", &flags)?;
    checks.says("LTO, panic=abort", &text, &innermost_line(run)?);
    checks.says("LTO, panic=abort", &text, "shortened: 1");
    Ok(())
}

/// The report's label for the line that allocates.
fn innermost_line(run: &Run) -> Result<String> {
    let source = run.shell.read_file("tests/programs/bare/src/main.rs")?;
    let before = source.lines().position(|line| line.contains("vec![1; bytes]")).context("bare has another line")?;
    Ok(format!("src/main.rs:{} (layers::inner)", before + 1))
}

/// Builds the program with these environment variables into its own target folder, and returns its output.
fn build(run: &Run, name: &str, variables: &[(&str, &str)]) -> Result<String> {
    let folder = run.target.join("builds").join(name);
    let build = cmd!(run.shell, "cargo build --quiet --release -p bare --target-dir {folder}");
    build.envs(variables.iter().copied()).run()?;
    let program = program(run, name);
    said(cmd!(run.shell, "{program}"))
}

fn program(run: &Run, name: &str) -> PathBuf {
    run.target.join("builds").join(name).join("release/bare")
}
