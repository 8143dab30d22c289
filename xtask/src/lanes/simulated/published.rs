//! Published examples and tests of candle and cudarc, under the preloaded library.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::cmd;

use super::builds::{self, PROFILE};
use super::command::GpuCommand;
use super::post_mortem;
use super::preloaded::{AllowedExit, Preloaded};
use crate::lane::Run;
use crate::programs::Programs;

/// Examples of a package. They run in their copied folder, because some read files from it.
struct PublishedExamples {
    folder: PathBuf,
    programs: Programs,
}

/// `basics` is linked against the driver but never calls it. `cuda_sum_benchmark` prints a kernel's result, which is 0
/// on the simulated GPU.
pub(super) fn candle(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = PublishedExamples::of(lane, "candle-examples", "candle-core")?;
    let ended = lane.both("basics", &examples.command(lane.run, "basics")?, AllowedExit::Success)?;
    lane.silent("basics", &ended);
    let basics = examples.command(lane.run, "cuda_basics")?;
    example(lane, "cuda_basics", &basics)?;
    lane.no_notes("cuda_basics", &basics)?;
    example(lane, "cuda_sum_benchmark", &examples.command(lane.run, "cuda_sum_benchmark")?)?;
    let (name, small) = ("cuda_basics out of memory", basics.variable("MEMTRACE_CUSIM_MEMORY", "1GiB"));
    let ended = post_mortem::out_of_memory(lane, name, &small, "examples/cuda_basics.rs")?;
    let is_row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [size, unit, _share, count, _median, _unit, line, ..] = words[..] else { return false };
        let number = line.strip_prefix("examples/cuda_basics.rs:").and_then(|line| line.parse::<u32>().ok());
        [size, unit, count] == ["481.0", "MiB", "1"] && number.is_some()
    };
    lane.checks.line(name, &ended.stderr, "481.0 MiB  1  examples/cuda_basics.rs:…", is_row);
    Ok(())
}

/// 08 is left out because it needs CUPTI, and cufile-copy because it needs cuFile. 05 and 06 allocate nothing. 09 reads
/// a constant of its module and 12 reads a limit. The simulated driver has neither, so both end with that error.
pub(super) fn cudarc(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = PublishedExamples::of(lane, "cudarc-examples", "cudarc")?;
    for name in ["01-allocate", "02-copy", "03-launch-kernel", "04-streams", "matmul-kernel"] {
        example(lane, name, &examples.command(lane.run, name)?)?;
    }
    for name in ["05-device-repr", "06-threading", "10-function-attributes"] {
        lane.both_recorded(name, &examples.command(lane.run, name)?, AllowedExit::Success, None)?;
    }
    for name in ["09-constant-memory", "12-context-config"] {
        lane.both_recorded(name, &examples.command(lane.run, name)?, AllowedExit::SuccessOrError, None)?;
    }
    let name = "nvrtc-compile";
    let ended = lane.both(name, &examples.command(lane.run, name)?, AllowedExit::Success)?;
    lane.silent(name, &ended);
    several_gpus(lane, &examples)?;
    older(lane)
}

/// A cudarc from before CUDA 13, whose features select the CUDA version.
fn older(lane: &mut Preloaded<'_>) -> Result<()> {
    let examples = PublishedExamples::of(lane, "cudarc-0.16-examples", "cudarc")?;
    for name in ["01-allocate", "matmul-kernel"] {
        let command = examples.command(lane.run, &format!("older-{name}"))?;
        let source = format!("examples/{name}.rs");
        lane.both_recorded(&format!("{name} of cudarc 0.16"), &command, AllowedExit::Success, Some(&source))?;
    }
    Ok(())
}

/// This example frees its first block while the second context, which is already destroyed, is current. The driver
/// refuses the free. cudarc ignores the error, and memtrace counts it.
fn several_gpus(lane: &mut Preloaded<'_>, examples: &PublishedExamples) -> Result<()> {
    let name = "13-copy-multi-gpu";
    example(lane, name, &examples.command(lane.run, name)?.variable("MEMTRACE_CUSIM_DEVICES", "2"))?;
    let refused = lane.report("report.json")?.health["refused_frees"].as_u64();
    lane.checks.equal(&format!("{name}: refused frees"), refused, Some(1));
    Ok(())
}

/// All lines of an example's report must be in its own file.
fn example(lane: &mut Preloaded<'_>, name: &str, command: &GpuCommand<'_>) -> Result<()> {
    lane.both_recorded(name, command, AllowedExit::Success, Some(&format!("examples/{name}.rs")))
}

/// Runs the CUDA tests of candle-core and cudarc, on eight threads. Tests that check a kernel's result fail, with and
/// without the library. One test is skipped, because its threads allocate during exit, after the report is written.
pub(super) fn tests(lane: &mut Preloaded<'_>) -> Result<()> {
    let candle = PublishedExamples::of(lane, "candle-examples", "candle-core")?;
    for name in ["tensor_tests", "grad_tests", "conv_tests", "matmul_tests"] {
        let tests = candle.command(lane.run, name)?.arguments(&["cuda", "gpu", "--skip", "tensor_send_sync"]);
        several_times(lane, name, &tests)?;
    }
    let cudarc = own_tests(lane, "cudarc-examples", "cudarc", "--features=cuda-version-from-build-system")?;
    several_times(lane, "cudarc's tests", &GpuCommand::of(lane.run, &cudarc))
}

/// `MEMTRACE_TEST_RUNS` sets the number of runs.
fn several_times(lane: &mut Preloaded<'_>, name: &str, command: &GpuCommand<'_>) -> Result<()> {
    let runs = std::env::var("MEMTRACE_TEST_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let command = command.clone().arguments(&["--test-threads=8"]);
    for number in 1..=runs {
        // The output is not compared, because its order differs between runs.
        lane.same_exit(name, &command, AllowedExit::Any)?;
        lane.recorded(&format!("{name}, run {number} of {runs}"), None, "report.json");
    }
    Ok(())
}

/// Builds the unit tests of a published package.
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
    let manifest = format!("--manifest-path={}", manifest.display());
    let programs = builds::with_toolkit(run, &["--locked", "--lib", "--tests", features, &manifest])?;
    Ok(programs.path(package)?.to_owned())
}

impl PublishedExamples {
    /// Copies the examples of a published package beside this repository's manifest, and builds them.
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

    fn command<'a>(&self, run: &Run, name: &str) -> Result<GpuCommand<'a>> {
        Ok(GpuCommand::of(run, self.programs.path(name)?).folder(&self.folder))
    }
}

/// The folder into which cargo unpacked the package.
pub(crate) fn published(run: &Run, manifest: &Path, package: &str) -> Result<PathBuf> {
    let shell = &run.shell;
    let options = ["--quiet", "--locked", "--format-version=1"];
    let text = cmd!(shell, "cargo metadata {options...} --manifest-path {manifest}").quiet().read()?;
    let metadata: Value = serde_json::from_str(&text)?;
    let found = metadata["packages"].as_array().into_iter().flatten().find(|found| found["name"] == package);
    let found = found.and_then(|found| found["manifest_path"].as_str());
    let manifest = Path::new(found.with_context(|| format!("{} has no {package}", manifest.display()))?);
    Ok(manifest.parent().context("a manifest is in a folder")?.to_owned())
}
