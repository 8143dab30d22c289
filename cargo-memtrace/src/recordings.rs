//! The folder of recordings under cargo's target folder: numbered names, the newest ones kept.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::CommandFailure;
use crate::input::target_dir;

/// The path of a program's next recording. Of the older ones at most `keep - 1` stay.
pub(crate) fn next(program: &str, keep: usize) -> Result<PathBuf, CommandFailure> {
    let folder = std::path::absolute(target_dir()).unwrap_or_else(|_| target_dir()).join("memtrace");
    fs::create_dir_all(&folder)
        .map_err(|error| CommandFailure::usage(format!("cannot make {}: {error}", folder.display())))?;
    let mut numbers = numbers(&folder, program);
    numbers.sort_unstable();
    let next = numbers.last().map_or(1, |last| last + 1);
    let surplus = (numbers.len() + 1).saturating_sub(keep.max(1));
    for number in numbers.iter().take(surplus) {
        // A recording that cannot be removed stays.
        let _ = fs::remove_file(path(&folder, program, *number));
    }
    Ok(path(&folder, program, next))
}

fn path(folder: &Path, program: &str, number: u64) -> PathBuf {
    folder.join(format!("{program}-{number}.memtrace"))
}

/// The numbers of a program's recordings.
fn numbers(folder: &Path, program: &str) -> Vec<u64> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let number = |name: String| name.strip_prefix(program)?.strip_prefix('-')?.strip_suffix(".memtrace")?.parse().ok();
    names.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_programs_own_recordings_count() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["train-1.memtrace", "train-12.memtrace", "train-x.memtrace", "train-2.svg", "other-7.memtrace"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let mut found = numbers(folder.path(), "train");
        found.sort_unstable();
        assert_eq!(found, [1, 12]);
    }
}
