//! Changed peaks that tests left below cargo's target folder, each under the path of its baseline file.

use std::fs;
use std::path::{Component, Path, PathBuf};

use memtrace_core::baseline::{BaselineEntry, Baselines};
use memtrace_core::export::file;

use crate::failure::CommandFailure;
use crate::input::target_dir;

/// The largest accepted file of baselines, in bytes.
const LARGEST: u64 = 64 << 20;

/// The changes of one baseline file.
pub(super) struct PendingFile {
    pub(super) baselines: PathBuf,
    pub(super) entries: Baselines,
    path: PathBuf,
}

impl PendingFile {
    /// The path of the baseline file, relative to the working directory if it is below it.
    pub(super) fn shown(&self) -> String {
        shown(&self.baselines)
    }

    pub(super) fn accept(&self, entry: &BaselineEntry) -> Result<(), CommandFailure> {
        let mut known = read(&self.baselines)?;
        known.put(entry.clone());
        write(&self.baselines, &known)?;
        self.forget(entry)
    }

    pub(super) fn forget(&self, entry: &BaselineEntry) -> Result<(), CommandFailure> {
        let mut left = read(&self.path)?;
        left.remove(&entry.name, &entry.device);
        if left.entries().is_empty() {
            return fs::remove_file(&self.path).map_err(|error| cannot("remove", &self.path, &error));
        }
        write(&self.path, &left)
    }
}

/// The changes of these files and folders, or all changes. Removes changes that the baselines already have, and
/// changes whose folders no longer exist.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PendingFile>, CommandFailure> {
    let target = std::path::absolute(target_dir()).unwrap_or_else(|_| target_dir());
    let mut found = Vec::new();
    // Tests write to the working directory if cargo did not mark its target folder.
    let roots = [target.join("memtrace/baselines"), target.join("simulated-gpu/memtrace/baselines")];
    for root in roots.into_iter().chain(["memtrace/baselines".into()]) {
        let mut files = Vec::new();
        walk(&root, &mut files);
        for path in files {
            let below = path.strip_prefix(&root).unwrap_or(&path);
            let baselines = Path::new("/").join(below);
            if !baselines.parent().is_some_and(Path::is_dir) {
                let _ = fs::remove_file(&path);
                continue;
            }
            let entries = read(&path)?;
            let file = PendingFile { baselines, entries, path };
            found.extend(without_known(file)?.filter(|file| is_meant(&file.baselines, paths)));
        }
    }
    found.sort_by(|a, b| a.baselines.cmp(&b.baselines));
    Ok(found)
}

fn without_known(mut file: PendingFile) -> Result<Option<PendingFile>, CommandFailure> {
    let known = read(&file.baselines)?;
    let is_known = |entry: &&BaselineEntry| known.get(&entry.name, &entry.device) == Some(*entry);
    let same: Vec<BaselineEntry> = file.entries.entries().iter().filter(is_known).cloned().collect();
    for entry in same {
        file.forget(&entry)?;
        file.entries.remove(&entry.name, &entry.device);
    }
    Ok((!file.entries.entries().is_empty()).then_some(file))
}

/// Whether this is one of the files, or in one of the folders. Without `paths`, every file counts.
pub(super) fn is_meant(baselines: &Path, paths: &[PathBuf]) -> bool {
    let has = |path: &PathBuf| path.canonicalize().is_ok_and(|path| baselines.starts_with(path));
    paths.is_empty() || paths.iter().any(has)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        match entry.path() {
            // Symbolic links are not followed, because they may form a circle.
            path if entry.file_type().is_ok_and(|kind| kind.is_dir()) => walk(&path, found),
            path if path.to_string_lossy().ends_with(".peaks.txt") => found.push(path),
            _ => {}
        }
    }
}

/// A file's baselines; none if there is no such file.
pub(super) fn read(path: &Path) -> Result<Baselines, CommandFailure> {
    let text = match memtrace_core::input::text_of(path, LARGEST) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|error| cannot("read", path, &error))?,
    };
    let wrong = |reason| CommandFailure::usage(format!("cannot read the baselines of {}: {reason}", path.display()));
    Baselines::parse(&text).map_err(wrong)
}

pub(super) fn write(path: &Path, baselines: &Baselines) -> Result<(), CommandFailure> {
    Ok(file::replace(path, baselines.to_string().as_bytes())?)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::usage(format!("cannot {what} {}: {error}", path.display()))
}

pub(super) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = path.strip_prefix(here).unwrap_or(path);
    below.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>().display().to_string()
}
