//! Local directory source: the packaged crates beside third-party crates, in place of a registry.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::lane::Run;

/// The packages that are published.
pub(crate) const PUBLISHED: [&str; 8] = [
    "memtrace-core",
    "candle-memtrace",
    "memtrace-preload",
    "memtrace-cusim",
    "memtrace-cusim-libraries",
    "memtrace-runner",
    "memtrace-gpu-check",
    "cargo-memtrace",
];

/// Packages the crates and fills `home`, the folder of a cargo that finds these crates and no network.
pub(crate) fn make(run: &Run, crates: &Path, home: &Path) -> Result<()> {
    let shell = &run.shell;
    let packaged = run.target.join("package");
    shell.remove_path(&packaged)?;
    let selected = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    cmd!(shell, "cargo package --quiet --no-verify --allow-dirty {selected...}").run()?;
    cmd!(shell, "cargo vendor --quiet --locked --versioned-dirs {crates}").ignore_stdout().run()?;
    let mut unpacked = 0;
    for entry in fs::read_dir(&packaged)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            unpack(run, &path, crates)?;
            unpacked += 1;
        }
    }
    ensure!(unpacked == PUBLISHED.len(), "cargo made {unpacked} packages, not {}", PUBLISHED.len());
    let source = format!(
        "[source.crates-io]\nreplace-with = \"packaged\"\n\n[source.packaged]\ndirectory = {crates:?}\n\n[net]\noffline = true\n"
    );
    Ok(shell.write_file(home.join("config.toml"), source)?)
}

fn unpack(run: &Run, package: &Path, crates: &Path) -> Result<()> {
    let shell = &run.shell;
    cmd!(shell, "tar --extract --gzip --file {package} --directory {crates}").quiet().run()?;
    let sum = cmd!(shell, "sha256sum {package}").quiet().read()?;
    let sum = sum.split(' ').next().context("sha256sum printed nothing")?;
    let name = package.file_stem().context("a package has a name")?;
    let checksum = format!("{{\"files\":{{}},\"package\":\"{sum}\"}}");
    Ok(shell.write_file(crates.join(name).join(".cargo-checksum.json"), checksum)?)
}
