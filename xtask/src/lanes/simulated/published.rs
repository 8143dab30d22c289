//! Examples and tests as candle and cudarc publish them, under the preloaded library.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use xshell::cmd;

use super::builds::{self, PROFILE, Programs};
use super::gpu::Call;
use super::preloaded::{End, Preloaded};
use super::{post_mortem, text};
use crate::lane::Run;

/// Built, in the folder that is named for their package. They run there: some read files of theirs.
struct Examples {
    folder: PathBuf,
    programs: Programs,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// A program that is linked against the driver and never calls it, and two that do. What cuda_sum_benchmark takes from a
/// kernel is 0 here, and printed.
pub(super) fn candle(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = Examples::of(lane, "candle-examples", "candle-core")?;
    let ended = lane.both("basics", &examples.call(lane.run, "basics")?, End::Well)?;
    lane.silent("basics", &ended);
    let basics = examples.call(lane.run, "cuda_basics")?;
    example(lane, "cuda_basics", &basics)?;
    lane.no_notes("cuda_basics", &basics)?;
    example(lane, "cuda_sum_benchmark", &examples.call(lane.run, "cuda_sum_benchmark")?)?;
    let (name, small) = ("cuda_basics out of memory", basics.options(&["--memory", "1GiB"]));
    let ended = post_mortem::out_of_memory(lane, name, &small, "examples/cuda_basics.rs")?;
    let is_row = |line: &str| matches!(text::words(line)[..], ["481.0", "MiB", "1", place, ..] if is_place(place));
    text::line(&mut lane.checks, name, &ended.errors, "481.0 MiB  1  examples/cuda_basics.rs:…", is_row);
    Ok(())
}

fn is_place(word: &str) -> bool {
    word.strip_prefix("examples/cuda_basics.rs:").is_some_and(|line| line.parse::<u32>().is_ok())
}

/// 08 needs CUPTI and cufile-copy needs cuFile: they are left out. What kernels did, which is nothing, is printed by some. 05
/// and 06 allocate nothing. 09 asks for a constant of its module and 12 for a limit, which the simulated driver does not
/// have: they end with that error.
pub(super) fn cudarc(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = Examples::of(lane, "cudarc-examples", "cudarc")?;
    for name in ["01-allocate", "02-copy", "03-launch-kernel", "04-streams", "matmul-kernel"] {
        example(lane, name, &examples.call(lane.run, name)?)?;
    }
    for name in ["05-device-repr", "06-threading", "10-function-attributes"] {
        lane.both_recorded(name, &examples.call(lane.run, name)?, End::Well, None)?;
    }
    for name in ["09-constant-memory", "12-context-config"] {
        lane.both_recorded(name, &examples.call(lane.run, name)?, End::WellOrBadly, None)?;
    }
    let name = "nvrtc-compile";
    let ended = lane.both(name, &examples.call(lane.run, name)?, End::Well)?;
    lane.silent(name, &ended);
    several_gpus(lane, &examples)?;
    older(lane)
}

/// A cudarc that knows no CUDA 13: which version it is built for, its features say, not the toolkit.
fn older(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = Examples::of(lane, "cudarc-0.16-examples", "cudarc")?;
    for name in ["01-allocate", "matmul-kernel"] {
        let call = examples.call(lane.run, &format!("older-{name}"))?;
        let source = format!("examples/{name}.rs");
        lane.both_recorded(&format!("{name} of cudarc 0.16"), &call, End::Well, Some(&source))?;
    }
    Ok(())
}

/// Its first block is freed when the context of the second is current, and gone: the driver refuses, and the block ends
/// with its own context. cudarc says nothing about it, memtrace does.
fn several_gpus(lane: &mut Preloaded<'_>, examples: &Examples) -> Result<()> {
    let name = "13-copy-multi-gpu";
    example(lane, name, &examples.call(lane.run, name)?.options(&["--devices", "2"]))?;
    let refused = lane.report("report.json")?.health.refused_frees;
    lane.checks.equal(&format!("{name}: refused frees"), refused, 1);
    Ok(())
}

/// Its lines are in its own file alone.
fn example(lane: &mut Preloaded<'_>, name: &str, call: &Call<'_>) -> Result<()> {
    lane.both_recorded(name, call, End::Well, Some(&format!("examples/{name}.rs")))
}

/// candle-core's tests for CUDA and cudarc's own, each of which starts CUDA, on eight threads. Those that look at what a
/// kernel did fail, with us as without. One leaves threads behind that go on allocating while the process ends, and is
/// skipped: what comes after the report is not in it.
pub(super) fn tests(lane: &mut Preloaded<'_>) -> Result<()> {
    let candle = Examples::of(lane, "candle-examples", "candle-core")?;
    for name in ["tensor_tests", "grad_tests", "conv_tests", "matmul_tests"] {
        several_times(
            lane,
            name,
            &candle.call(lane.run, name)?.arguments(&["cuda", "gpu", "--skip", "tensor_send_sync"]),
        )?;
    }
    let cudarc = own_tests(lane, "cudarc-examples", "cudarc", "--features=cuda-version-from-build-system")?;
    several_times(lane, "cudarc's tests", &Call::of(lane.run, &cudarc))
}

/// `MEMTRACE_TEST_RUNS` says how often.
fn several_times(lane: &mut Preloaded<'_>, name: &str, call: &Call<'_>) -> Result<()> {
    let runs = std::env::var("MEMTRACE_TEST_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let call = call.clone().arguments(&["--test-threads=8"]);
    for number in 1..=runs {
        lane.ends_as_alone(name, &call)?;
        lane.recorded(&format!("{name}, run {number} of {runs}"), None, "report.json");
    }
    Ok(())
}

/// The tests inside of a published package, built.
fn own_tests(lane: &mut Preloaded<'_>, ours: &str, package: &str, features: &str) -> Result<PathBuf> {
    let run = lane.run;
    let published = published(run, &run.root.join("tests/simulated").join(ours).join("Cargo.toml"), package)?;
    let name = published.file_name().context("a package is in a folder")?;
    let (folder, shell) = (run.target.join("unchanged/tests").join(name), &run.shell);
    shell.create_dir(&folder)?;
    cmd!(shell, "cp -rpT {published} {folder}").quiet().run()?;
    let manifest = folder.join("Cargo.toml");
    let text = shell.read_file(&manifest)?;
    shell.write_file(&manifest, format!("{text}\n[workspace]\n\n[profile.{PROFILE}]\ninherits = \"dev\"\n"))?;
    let programs = builds::with_toolkit(
        run,
        &["--locked", "--lib", "--tests", features, &format!("--manifest-path={}", manifest.display())],
    )?;
    Ok(programs.path(package)?.to_owned())
}

impl Examples {
    /// Puts a manifest of ours beside the examples of a published package, and builds them.
    fn of(lane: &mut Preloaded<'_>, ours: &str, package: &str) -> Result<Self> {
        let (run, ours) = (lane.run, lane.run.root.join("tests/simulated").join(ours));
        let published = published(run, &ours.join("Cargo.toml"), package)?;
        let name = published.file_name().context("a package is in a folder")?.to_owned();
        let (folder, shell) = (run.target.join("unchanged").join(&name), &run.shell);
        shell.create_dir(&folder)?;
        let copied = [published.join("examples"), ours.join("Cargo.toml"), ours.join("Cargo.lock")];
        let tests = Some(published.join("tests")).filter(|tests| tests.exists());
        let tests = tests.as_slice();
        cmd!(shell, "cp -rpf {copied...} {tests...} {folder}").quiet().run()?;
        let manifest = format!("--manifest-path={}", folder.join("Cargo.toml").display());
        let targets = if tests.is_empty() { &["--bins"] } else { ["--bins", "--test=*"].as_slice() };
        let programs = builds::with_toolkit(run, &[&["--locked", &manifest], targets].concat())?;
        lane.checks.ok(&format!("{}: its examples are built", name.display()));
        Ok(Self { folder, programs })
    }

    fn call<'a>(&self, run: &Run, name: &str) -> Result<Call<'a>> {
        Ok(Call::of(run, self.programs.path(name)?).folder(&self.folder))
    }
}

/// Where cargo has unpacked the package.
fn published(run: &Run, manifest: &std::path::Path, package: &str) -> Result<PathBuf> {
    let shell = &run.shell;
    let options = ["--quiet", "--locked", "--format-version=1"];
    let text = cmd!(shell, "cargo metadata {options...} --manifest-path {manifest}").quiet().read()?;
    let metadata: Metadata = serde_json::from_str(&text)?;
    let found = metadata.packages.into_iter().find(|found| found.name == package);
    let manifest = found.with_context(|| format!("{} has no {package}", manifest.display()))?.manifest_path;
    Ok(manifest.parent().context("a manifest is in a folder")?.to_owned())
}
