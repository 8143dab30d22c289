//! What programs need that do not contain memtrace, or have no GPU: the preload library, the simulated GPU and the test
//! runner, built once into the cache.
//!
//! Their sources are the packages that were published with this one. Cargo fetches them like any dependency; a copy of
//! them, laid out like memtrace's repository, is built in the cache. A `cargo-memtrace` that was built in the repository
//! uses the repository.

mod sources;

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::cargo;
use crate::failure::CommandFailure;
use crate::input;

/// Variables for a program.
pub(crate) type Environment = Vec<(String, String)>;

/// The library for `LD_PRELOAD`.
pub(crate) fn preload_library() -> Result<PathBuf, CommandFailure> {
    Ok(built("memtrace-preload", "the preload library")?.join("libmemtrace_preload.so"))
}

/// The runner that chooses a GPU for each test program.
pub(crate) fn runner() -> Result<PathBuf, CommandFailure> {
    Ok(built("memtrace-runner", "the test runner")?.join("memtrace-runner"))
}

/// The check of a real GPU.
pub(crate) fn gpu_check() -> Result<PathBuf, CommandFailure> {
    Ok(built("memtrace-gpu-check", "the check of the GPU")?.join("gpu-check"))
}

/// What is built on first use, and whether it was.
pub(crate) fn parts() -> impl Iterator<Item = (&'static str, bool)> {
    let files = [
        ("preload library", "kit-target/release/libmemtrace_preload.so"),
        ("test runner", "kit-target/release/memtrace-runner"),
        ("simulated GPU", "target/cusim/release/libmemtrace_cusim.so"),
        ("check of the GPU", "kit-target/release/gpu-check"),
    ];
    files.into_iter().map(|(name, file)| (name, cache().join(file).exists()))
}

/// The variables with which programs are built for a simulated GPU and find it. One size a GPU.
///
/// The target folder is one of their own: programs with empty kernels must never be taken for programs of a real GPU.
pub(crate) fn simulated_gpu(memory: &str) -> Result<Environment, CommandFailure> {
    let sizes: Vec<&str> = memory.split(',').collect();
    for size in &sizes {
        memtrace_core::parse_bytes(size)?;
    }
    if sizes.iter().any(|size| size != &sizes[0]) {
        return Err(CommandFailure::usage(format!(
            "{memory}: all simulated GPUs have one size; give it once for each"
        )));
    }
    let target = std::path::absolute(input::target_dir().join("simulated-gpu"))
        .map_err(|error| CommandFailure::usage(format!("no folder to build in: {error}")))?;
    let libraries = driver_folder()?;
    let mut variables = toolkit(&target)?;
    variables.push(("CARGO_TARGET_DIR".to_owned(), target.display().to_string()));
    variables.push(("MEMTRACE_CUSIM_MEMORY".to_owned(), sizes[0].to_owned()));
    variables.push(("MEMTRACE_CUSIM_DEVICES".to_owned(), sizes.len().to_string()));
    variables.push(("LD_LIBRARY_PATH".to_owned(), in_front("LD_LIBRARY_PATH", libraries.as_os_str())));
    Ok(variables)
}

/// The folder with the simulated libcuda and the libraries above it.
pub(crate) fn driver_folder() -> Result<PathBuf, CommandFailure> {
    let folder = script("simulated-driver", &[])?;
    Ok(PathBuf::from(folder.trim_end()))
}

/// The variables of the stand-in toolkit, with which candle's feature `cuda` builds into this target folder.
fn toolkit(target: &Path) -> Result<Environment, CommandFailure> {
    let exports = script("stand-in-toolkit", &["--target".as_ref(), target.as_os_str()])?;
    let export = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        let value = match name {
            "PATH" => in_front("PATH", OsStr::new(value.split('\'').nth(1)?)),
            "CUDA_COMPUTE_CAP" => std::env::var(name).unwrap_or_else(|_| "90".to_owned()),
            _ => value.trim_matches('\'').to_owned(),
        };
        Some((name.to_owned(), value))
    };
    Ok(exports.lines().filter_map(export).collect())
}

/// A variable's list of folders with this one in front.
fn in_front(variable: &str, folder: &OsStr) -> String {
    let others = std::env::var(variable).unwrap_or_default();
    let folder = folder.to_string_lossy();
    if others.is_empty() { folder.into_owned() } else { format!("{folder}:{others}") }
}

/// The output of one of the kit's scripts.
fn script(name: &str, args: &[&OsStr]) -> Result<String, CommandFailure> {
    let script = sources::root()?.join("scripts").join(name);
    let output = Command::new(&script)
        .args(args)
        .env("CARGO", cargo())
        .env_remove("CARGO_TARGET_DIR")
        .stderr(Stdio::inherit())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(_) => Err(CommandFailure::usage(format!("{} failed; its messages are above", script.display()))),
        Err(error) => Err(CommandFailure::usage(format!("cannot run {}: {error}", script.display()))),
    }
}

/// Builds a package of the kit, if its sources are newer, and gives the folder with its files.
fn built(package: &str, what: &str) -> Result<PathBuf, CommandFailure> {
    let (root, target) = (sources::root()?, cache().join("kit-target"));
    let folder = target.join("release");
    if !folder.exists() {
        eprintln!("memtrace: building {what}; this happens once");
    }
    // The program's flags and targets are not the kit's. On a terminal, cargo shows its progress.
    let quiet = (!std::io::stderr().is_terminal()).then_some("--quiet");
    let status = Command::new(cargo())
        .args(["build", "--release", "--package", package])
        .args(quiet)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .status();
    match status {
        Ok(status) if status.success() => Ok(folder),
        Ok(_) => Err(CommandFailure::usage(format!("{what} could not be built; cargo's messages are above"))),
        Err(error) => Err(CommandFailure::usage(format!("cannot run cargo: {error}"))),
    }
}

/// `$XDG_CACHE_HOME/memtrace`.
pub(crate) fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".cache");
    std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map_or_else(home, PathBuf::from).join("memtrace")
}

/// Copies a folder, but not what cargo built in it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                copy(&entry.path(), &target)?;
            }
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
