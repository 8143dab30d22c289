//! Measured peaks that differ from their baselines, kept for `cargo memtrace baselines`. They lie below cargo's target
//! folder, in the format and under the path of the baseline file. If such a peak cannot be written, the test does not
//! fail.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use memtrace_core::baseline::BaselineEntry;
use memtrace_core::export::file;

use super::baseline_file::{entries_of, lock, put as put_into};
use crate::error::Error;
use crate::session::base_dir;
use crate::variable;
use crate::write_errors;

/// `target/memtrace/baselines/home/u/p/tests/model.peaks.txt` for `/home/u/p/tests/model.peaks.txt`.
fn beside(baselines: &Path) -> Option<PathBuf> {
    let path = baselines.canonicalize().or_else(|_| std::path::absolute(baselines)).ok()?;
    let below: PathBuf = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    Some(base_dir(Path::new("")).join("baselines").join(below))
}

/// Keeps a measurement until it is accepted, or until the test matches its baseline again.
pub(super) fn put(baselines: &Path, entry: BaselineEntry) {
    let kept = beside(baselines).map(|path| -> Result<(), Error> {
        let folder = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).map_err(|error| Error::output(folder, error))?;
        put_into(&path, entry)
    });
    if let Some(Err(error)) = kept {
        crate::session::say(&format!("nothing to review was kept: {error}"));
    }
}

/// Forgets a measurement: its test matches the baseline.
pub(super) fn withdraw(baselines: &Path, name: &str, device: &str) {
    let Some(path) = beside(baselines).filter(|path| path.exists()) else { return };
    let _ = without(&path, name, device);
}

fn without(path: &Path, name: &str, device: &str) -> Result<(), Error> {
    let _lock = lock(path)?;
    let mut entries = entries_of(path)?;
    if entries.remove(name, device).is_none() {
        return Ok(());
    }
    if entries.entries().is_empty() {
        return fs::remove_file(path).map_err(|error| Error::output(path, error));
    }
    let _limit = write_errors::errors_only();
    Ok(file::replace(path, entries.to_string().as_bytes())?)
}

/// Notes for `cargo memtrace baselines prune` that a test still has this baseline.
pub(super) fn used(baselines: &Path, name: &str, device: &str) {
    let Some(list) = variable::value("MEMTRACE_BASELINES_USED") else { return };
    let path = baselines.canonicalize().unwrap_or_else(|_| baselines.to_owned());
    let line = format!("{}\t{device}\t{name}\n", path.display());
    let _limit = write_errors::errors_only();
    // One write of one line, so that lines of several processes do not mix. `prune` made the list.
    let noted = OpenOptions::new().append(true).open(&list).and_then(|mut list| list.write_all(line.as_bytes()));
    if let Err(error) = noted {
        // If the list lacked this line, the baseline would seem to have no test.
        let _ = fs::remove_file(&list);
        crate::session::say(&format!("cannot write {}: {error}; no baseline is removed", list.display()));
    }
}
