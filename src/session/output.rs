//! Names of files that are still free.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// So many files of one name are kept where nobody named them.
const KEPT: usize = 10;

/// Writes a snapshot to a new file in that folder, whose name is `path`'s or has a number besides. Of the older ones with
/// that name a few are kept.
pub(crate) fn write_new(snapshot: &super::Snapshot, name: &str) -> Result<PathBuf, Error> {
    let path = base_dir(Path::new("")).join(name);
    let written = snapshot.write(&path)?;
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    prune(&path, |other| {
        let number = other.strip_prefix(stem).and_then(|rest| rest.strip_suffix(end)?.strip_suffix('.'));
        number.is_some_and(|number| number.is_empty() || number.strip_prefix('-').is_some_and(is_number))
    });
    Ok(written)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Removes the oldest of the files beside this one that are meant, but for a few.
pub(super) fn prune(path: &Path, is_meant: impl Fn(&str) -> bool) {
    let Some(Ok(folder)) = path.parent().map(std::fs::read_dir) else { return };
    let meant = folder.filter_map(Result::ok).filter(|file| is_meant(&file.file_name().to_string_lossy()));
    let age = |file: std::fs::DirEntry| Some((file.metadata().ok()?.modified().ok()?, file.path()));
    let mut files: Vec<_> = meant.filter_map(age).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    // What cannot be removed stays.
    files.iter().skip(KEPT).for_each(|(_, path)| _ = std::fs::remove_file(path));
}

/// The folder for outputs that have no other: `memtrace` in cargo's target folder, or in the one that is given.
pub(super) fn base_dir(folder: &Path) -> PathBuf {
    let Some(target) = target_of_cargo() else { return "memtrace".into() };
    let here = if folder.as_os_str().is_empty() { std::env::current_dir().unwrap_or_default() } else { folder.into() };
    target.strip_prefix(here).unwrap_or(&target).join("memtrace")
}

/// Where cargo put this program; where rustdoc put it elsewhere, the folder beside the sources. It has a mark.
fn target_of_cargo() -> Option<PathBuf> {
    let is_cargos =
        |folder: &PathBuf| std::fs::read_to_string(folder.join("CACHEDIR.TAG")).is_ok_and(|tag| tag.contains("cargo"));
    let program = std::env::current_exe().ok()?;
    let here = std::env::current_dir().unwrap_or_default();
    let beside = here.ancestors().map(|folder| folder.join("target"));
    program.ancestors().map(Path::to_owned).chain(beside).find(is_cargos)
}
