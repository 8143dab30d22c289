//! Licences of the packages that are linked into the archive's files, with the texts from the packages.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::versions::{Metadata, Package};
use crate::lane::Run;

/// The packages whose programs or libraries are in the archive.
const LINKED: [&str; 4] = ["cargo-memtrace", "memtrace-preload", "memtrace-cusim", "memtrace-cusim-libraries"];

/// Beginnings of the names of files with a licence or a notice.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

pub(super) fn linked(run: &Run, target: &str) -> Result<String> {
    let metadata = cmd!(run.shell, "cargo metadata --locked --format-version 1 --filter-platform {target}");
    let Metadata { packages } = serde_json::from_str(&metadata.quiet().read()?)?;
    let names = names(run, target)?;
    let packages: Vec<&Package> =
        packages.iter().filter(|it| names.contains(&named(it)) && is_foreign(run, it)).collect();
    ensure!(packages.len() > 20, "only {} packages seem to be linked in", packages.len());
    let mut text = format!(
        "The programs and libraries of this archive contain Rust's standard library (MIT OR Apache-2.0) and the {} packages below,\n\
         in the versions named here. Their sources are on crates.io.\n",
        packages.len()
    );
    for package in packages {
        let licence = package.license.as_deref().with_context(|| format!("{} names no licence", package.name))?;
        write!(text, "\n{0}\n{1} {2}: {licence}\n{0}\n", "=".repeat(100), package.name, package.version)?;
        text.push_str(&texts(package)?);
    }
    Ok(text)
}

/// Names and versions of the linked packages, without packages that are only for building or tests.
fn names(run: &Run, target: &str) -> Result<BTreeSet<String>> {
    let of = LINKED.iter().flat_map(|package| ["--package", package]);
    let tree =
        cmd!(run.shell, "cargo tree --locked --edges normal,no-proc-macro --prefix none --target {target} {of...}");
    let line = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    Ok(tree.quiet().read()?.lines().filter_map(line).collect())
}

fn named(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn is_foreign(run: &Run, package: &Package) -> bool {
    !Path::new(&package.manifest_path).starts_with(&run.root)
}

/// The files of a package whose names begin with one of these, sorted by name.
fn texts(package: &Package) -> Result<String> {
    let folder = Path::new(&package.manifest_path).parent().context("a manifest lies in a folder")?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file() && is_licence(file));
    files.sort_unstable();
    let read = |file: &PathBuf| Ok(String::from_utf8_lossy(&std::fs::read(file)?).trim_end().to_owned() + "\n\n");
    let text: String = files.iter().map(read).collect::<Result<_>>()?;
    Ok(if text.is_empty() { "The package has no file with the text of its licence.\n".to_owned() } else { text })
}

fn is_licence(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    NAMES.iter().any(|begin| name.starts_with(begin))
}
