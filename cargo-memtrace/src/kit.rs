//! What programs need that do not contain memtrace, or have no GPU: the preload library and the simulated GPU, built once
//! into the cache.

use std::path::PathBuf;
use std::process::Command;

use crate::build::cargo;
use crate::failure::Failure;

/// The library for `LD_PRELOAD`.
pub(crate) fn preload_library() -> Result<PathBuf, Failure> {
    let source = source("preload")?;
    let target = cache().join("kit");
    eprintln!("memtrace: building the preload library, once");
    let built = Command::new(cargo())
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(source.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status();
    match built {
        Ok(status) if status.success() => Ok(target.join("release/libmemtrace_preload.so")),
        _ => Err(Failure::usage("the preload library could not be built")),
    }
}

/// The environment in which programs are built for a simulated GPU and find it.
pub(crate) fn simulated_gpu(_memory: &str) -> Result<Vec<(String, String)>, Failure> {
    Err(Failure::usage("no simulated GPU is installed; use scripts/with-simulated-gpu of memtrace's repository"))
}

fn source(package: &str) -> Result<PathBuf, Failure> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).with_file_name(package);
    if beside.join("Cargo.toml").exists() {
        Ok(beside)
    } else {
        Err(Failure::usage(format!("the sources of {package} are not there")))
    }
}

fn cache() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from).join("memtrace")
}
