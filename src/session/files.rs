//! Output files. They are written as own work and never replace an existing file. If the user did not choose the name,
//! only the newest files are kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use memtrace_core::export::{LeftOut, file};

use super::say;
use crate::error::Error;
use crate::executable::executable;
use crate::record::guard::Own;
use crate::write_errors::errors_only;

/// How many files of one name are kept if the user did not choose the name.
const KEPT: usize = 10;

/// Writes a file, reports what it left out, and returns the file's path, whose memory is the caller's, not memtrace's
/// own.
pub(super) fn create(
    path: &Path,
    content: impl Fn(&mut dyn Write) -> Result<LeftOut, memtrace_core::Error>,
) -> Result<PathBuf, Error> {
    let written = Own::try_make(|| {
        let _limit = errors_only();
        let (path, left_out) = file::create(path, content)
            .map_err(|error| error.and("the recording is still in memory, try another path"))?;
        if !left_out.is_nothing() {
            say(&format!("{}: {left_out}", path.display()));
        }
        Ok::<_, Error>(path)
    })?;
    Ok(written.to_path_buf())
}

/// Writes a snapshot as `name`, or `name-2`, … if that exists, in the [default folder](base_dir), and deletes all but
/// the newest of such files.
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

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Keeps only the newest [`KEPT`] of the matching files in the folder of `path`. Files that cannot be removed stay.
pub(super) fn prune(path: &Path, matches: impl Fn(&str) -> bool) {
    let Some(Ok(folder)) = path.parent().map(std::fs::read_dir) else { return };
    let matching = folder.filter_map(Result::ok).filter(|file| matches(&file.file_name().to_string_lossy()));
    let age = |file: std::fs::DirEntry| Some((file.metadata().ok()?.modified().ok()?, file.path()));
    let mut files: Vec<_> = matching.filter_map(age).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in files.iter().skip(KEPT) {
        let _ = std::fs::remove_file(path);
    }
}

/// The default output folder: `memtrace` in cargo's target folder, or else in the working directory. Relative to
/// `folder`, or to the working directory if `folder` is empty.
pub(crate) fn base_dir(folder: &Path) -> PathBuf {
    let Some(target) = cargo_target() else { return "memtrace".into() };
    let here = if folder.as_os_str().is_empty() { std::env::current_dir().unwrap_or_default() } else { folder.into() };
    target.strip_prefix(here).unwrap_or(&target).join("memtrace")
}

/// Cargo's target folder: above this program's file, or, for a doctest, above the working directory.
fn cargo_target() -> Option<PathBuf> {
    let program = executable()?;
    let here = std::env::current_dir().unwrap_or_default();
    let beside = here.ancestors().map(|folder| folder.join("target"));
    program.ancestors().map(Path::to_owned).chain(beside).find(|folder| is_cargos(folder))
}

/// Whether cargo uses the folder as a target folder. Cargo writes `CACHEDIR.TAG` only into a folder that it created.
/// It writes `.rustc_info.json` also into a folder that existed before, such as a mount point.
fn is_cargos(folder: &Path) -> bool {
    let tag = std::fs::read_to_string(folder.join("CACHEDIR.TAG"));
    tag.is_ok_and(|tag| tag.contains("cargo")) || folder.join(".rustc_info.json").is_file()
}
