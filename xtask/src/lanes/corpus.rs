//! Attribution in tests/programs/corpus, where every operator states what it is. In a normal release build, attribution
//! must be right. Builds with less symbol information may leave sites unknown but must never name a wrong one.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::cmd;

use crate::checks::Checks;
use crate::lane::{Run, both_streams, output};

const SOURCE: &str = "tests/programs/corpus";

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    let shell = &run.shell;
    // The lane main-job names the same packages, so both use one build of candle.
    let packages = ["-p", "candle-memtrace", "-p", "corpus", "-p", "llama-example"];
    cmd!(shell, "cargo build --quiet --release {packages...} --bin corpus --example resnet").run()?;
    let program = run.target.join("release/corpus");
    check(run, &mut checks, "line tables", &program, &["--strict"])?;
    if run.is_full() {
        without_symbols(run, &mut checks, &program)?;
        let named = [
            ("CARGO_PROFILE_RELEASE_DEBUG", "full"),
            ("CARGO_PROFILE_RELEASE_STRIP", "none"),
            ("RUSTFLAGS", "-C symbol-mangling-version=v0"),
        ];
        let lto = [("CARGO_PROFILE_RELEASE_LTO", "fat"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")];
        let name = "full debug information and v0 names";
        let program = other_build(run, &mut checks, name, &named)?;
        without_debug_information(run, &mut checks, name, &program)?;
        shell.remove_path(target(run))?;
        // There is no such build without debug information, because only debug information shows what LTO inlined into
        // the program's own code.
        other_build(run, &mut checks, "fat LTO", &lto)?;
        shell.remove_path(target(run))?;
        other_candle(run, &mut checks, "0.9.2")?;
        other_candle(run, &mut checks, "0.8.4")?;
    }
    checks.end()
}

fn target(run: &Run) -> PathBuf {
    run.target.join("corpus")
}

/// Checks the program's result, which is its last line.
fn check(run: &Run, checks: &mut Checks, name: &str, program: &Path, arguments: &[&str]) -> Result<()> {
    let output = output(cmd!(run.shell, "{program} {arguments...}"))?;
    let text = both_streams(&output);
    print!("{text}");
    let last = text.lines().last().unwrap_or("");
    checks.exit(&format!("{name}: {last}"), output.status, output.status.success(), &text);
    Ok(())
}

fn without_symbols(run: &Run, checks: &mut Checks, program: &Path) -> Result<()> {
    without_debug_information(run, checks, "line tables", program)?;
    let stripped = run.scratch("corpus")?.join("stripped");
    cmd!(run.shell, "strip --strip-all {program} -o {stripped}").run()?;
    check(run, checks, "stripped", &stripped, &[])
}

fn without_debug_information(run: &Run, checks: &mut Checks, name: &str, program: &Path) -> Result<()> {
    let symbols_only = run.scratch("corpus")?.join("symbols-only");
    cmd!(run.shell, "objcopy --strip-debug {program} {symbols_only}").run()?;
    check(run, checks, &format!("{name}, symbols only"), &symbols_only, &[])
}

fn other_build(run: &Run, checks: &mut Checks, name: &str, variables: &[(&str, &str)]) -> Result<PathBuf> {
    let target = target(run);
    let build = cmd!(run.shell, "cargo build --quiet --release -p corpus --target-dir {target}");
    build.envs(variables.iter().copied()).run()?;
    let program = target.join("release/corpus");
    check(run, checks, name, &program, &[])?;
    Ok(program)
}

/// Builds the program with another version of candle, in a package outside the workspace.
fn other_candle(run: &Run, checks: &mut Checks, version: &str) -> Result<()> {
    let (shell, target) = (&run.shell, target(run));
    let folder = run.scratch(&format!("candle-{version}"))?;
    cmd!(shell, "cp -r {SOURCE}/src {folder}").run()?;
    let manifest = manifest_with(&shell.read_file(format!("{SOURCE}/Cargo.toml"))?, &run.root, version);
    shell.write_file(folder.join("Cargo.toml"), manifest)?;
    cmd!(shell, "cargo build --quiet --release --manifest-path {folder}/Cargo.toml --target-dir {target}").run()?;
    check(run, checks, &format!("candle {version}"), &target.join("release/corpus"), &[])?;
    Ok(shell.remove_path(target)?)
}

fn manifest_with(manifest: &str, root: &Path, version: &str) -> String {
    let package = manifest.split("[lints]").next().unwrap_or(manifest);
    let lines = package.lines().filter(|line| !line.starts_with("license.workspace"));
    let own: String = lines.map(|line| format!("{line}\n")).collect();
    let own = own.replace("edition.workspace = true", "edition = \"2024\"").replace("0.11.1", &format!("={version}"));
    let own = own.replace("\"../../..\"", &format!("\"{}\"", root.display()));
    format!("{own}[workspace]\n[profile.release]\ndebug = \"line-tables-only\"\n")
}
