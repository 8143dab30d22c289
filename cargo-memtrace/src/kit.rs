//! What programs need that do not contain memtrace, or have no GPU: the preload library, the simulated GPU and the test
//! runner, built once into the cache.
//!
//! Their sources are the packages that were published with this one. Cargo fetches them like any dependency; a copy of
//! them, laid out like memtrace's repository, is built in the cache. A `cargo-memtrace` that was built in the repository
//! uses the repository.

mod built;
mod sources;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::built::{PARTS, clear_of_the_project};
use crate::build::cargo;
use crate::cache::cache;
use crate::failure::CommandFailure;
use crate::input;

/// Variables for a program.
pub(crate) type Environment = Vec<(String, String)>;

/// The library for `LD_PRELOAD`.
pub(crate) fn preload_library() -> Result<PathBuf, CommandFailure> {
    PARTS[0].file()
}

/// The runner that chooses a GPU for each test program.
pub(crate) fn runner() -> Result<PathBuf, CommandFailure> {
    PARTS[1].file()
}

/// The check of a real GPU.
pub(crate) fn gpu_check() -> Result<PathBuf, CommandFailure> {
    PARTS[2].file()
}

/// What is built on first use, and whether it was.
pub(crate) fn parts() -> impl Iterator<Item = (&'static str, bool)> {
    let simulator = || Ok::<_, CommandFailure>(cache()?.join("target/cusim/release/libmemtrace_cusim.so").exists());
    let parts = PARTS.iter().map(|part| (part.name, part.is_built()));
    parts.chain([("simulated GPU", simulator().unwrap_or(false))])
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
    let root = sources::root()?;
    let script = root.join("scripts").join(name);
    let mut command = Command::new(&script);
    command.args(args).env("CARGO", cargo()).env_remove("CARGO_TARGET_DIR").stderr(Stdio::inherit());
    let output = clear_of_the_project(&mut command, &root).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(_) => Err(CommandFailure::usage(format!("{} failed; its messages are above", script.display()))),
        Err(error) => Err(CommandFailure::usage(format!("cannot run {}: {error}", script.display()))),
    }
}
