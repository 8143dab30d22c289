//! The kit's sources: memtrace's repository, or a copy of the published packages in its layout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::MetadataCommand;
use memtrace_runner::kit::{cache, cargo};

use crate::failure::CommandFailure;
use crate::output;

/// The kit's packages and their folders in the repository.
const PACKAGES: [(&str, &str); 5] = [
    ("memtrace-cusim", "cusim"),
    ("memtrace-cusim-libraries", "cusim/libraries"),
    ("memtrace-preload", "preload"),
    ("memtrace-gpu-check", "tests/gpu"),
    ("memtrace-runner", "runner"),
];

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder with the sources.
pub(super) fn root() -> Result<PathBuf, CommandFailure> {
    if let Some(root) = root_at_hand() {
        return Ok(root);
    }
    output::say("fetching the sources of the simulated GPU, the runner and the preload library; this happens once");
    let root = copied_root()?;
    let cache = cache().map_err(CommandFailure::Use)?;
    let failed = |error: std::io::Error| CommandFailure::usage(format!("cannot write {}: {error}", root.display()));
    fs::create_dir_all(&cache).map_err(failed)?;
    let new = tempfile::Builder::new().prefix(".kit-").tempdir_in(cache).map_err(failed)?;
    make(new.path())?;
    // The folder appears whole or not at all. Another process may have made it first.
    match fs::rename(new.path(), &root) {
        Err(error) if !root.is_dir() => Err(failed(error)),
        _ => Ok(root),
    }
}

/// The folder with the sources, if nothing has to be fetched.
pub(super) fn root_at_hand() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let has_all = PACKAGES.iter().all(|(_, folder)| repository.join(folder).join("Cargo.toml").exists());
    if has_all { Some(repository.to_owned()) } else { copied_root().ok().filter(|root| root.is_dir()) }
}

fn copied_root() -> Result<PathBuf, CommandFailure> {
    Ok(cache().map_err(CommandFailure::Use)?.join(format!("kit-{VERSION}")))
}

/// Lets cargo fetch the packages, and copies them.
fn make(root: &Path) -> Result<(), CommandFailure> {
    let failed = |error: std::io::Error| CommandFailure::usage(format!("cannot write {}: {error}", root.display()));
    let manifest = root.join("fetch/Cargo.toml");
    fs::create_dir_all(root.join("fetch")).map_err(failed)?;
    let needs: String = PACKAGES.iter().map(|(package, _)| format!("{package} = \"={VERSION}\"\n")).collect();
    let fetch = format!(
        "[package]\nname = \"memtrace-kit\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[dependencies]\n{needs}[workspace]\n"
    );
    fs::write(&manifest, fetch).map_err(failed)?;
    fs::write(root.join("fetch/lib.rs"), "").map_err(failed)?;
    let metadata = MetadataCommand::new().manifest_path(&manifest).current_dir(root).exec();
    let metadata =
        metadata.map_err(|error| CommandFailure::usage(format!("cargo cannot fetch memtrace's packages: {error}")))?;
    for (name, folder) in PACKAGES {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name);
        let source = package.and_then(|package| package.manifest_path.parent());
        let source = source.ok_or_else(|| CommandFailure::usage(format!("cargo fetched no {name}")))?;
        copy(source.as_std_path(), &root.join(folder)).map_err(failed)?;
    }
    let members: Vec<String> = PACKAGES.iter().map(|(_, folder)| format!("{folder:?}")).collect();
    let workspace =
        format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\nexclude = [\"fetch\"]\n", members.join(", "));
    fs::write(root.join("Cargo.toml"), workspace).map_err(failed)?;
    // The name of a part's folder in the cache has a hash of its sources. These include Cargo.lock, so it is made here.
    let mut lock = Command::new(cargo());
    match lock.args(["generate-lockfile", "--quiet"]).current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(CommandFailure::usage("cargo cannot choose the versions of the kit's dependencies")),
    }
}

/// Copies a folder without cargo's build output.
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
