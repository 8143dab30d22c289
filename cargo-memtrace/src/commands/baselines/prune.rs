//! `baselines prune`: removes baselines that a complete, successful test run did not use and that no source file names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use memtrace_runner::kit::cargo;

use super::pending::{is_meant, read, shown, write};
use super::{answer, is_interactive};
use crate::failure::CommandFailure;
use crate::{called, output};

/// The names that tests used, by baseline file and device.
type Used = BTreeMap<(PathBuf, String), BTreeSet<String>>;

pub(super) fn prune(paths: &[PathBuf], accept: bool, args: &[OsString]) -> Result<ExitCode, CommandFailure> {
    let list = std::env::temp_dir().join(format!("memtrace-used-{}.txt", std::process::id()));
    let used = tested(&list, args);
    let _ = std::fs::remove_file(&list);
    let (used, mut removed, mut left) = (used?, 0, 0);
    let files: BTreeSet<&PathBuf> = used.keys().map(|(file, _)| file).collect();
    for file in files.into_iter().filter(|file| is_meant(file, paths)) {
        let mut baselines = read(file)?;
        let unused = unused(file, &used, baselines.entries().iter().map(|entry| (&*entry.name, &*entry.device)));
        for (name, device) in &unused {
            output::print_lines([format!("{}: {name} on {device} has no test", shown(file))])?;
        }
        let yes =
            !unused.is_empty() && (accept || is_interactive() && answer("remove? [y/n] ", &['y', 'n'])? == Some('y'));
        if yes {
            unused.iter().for_each(|(name, device)| _ = baselines.remove(name, device));
            write(file, &baselines)?;
        }
        *if yes { &mut removed } else { &mut left } += unused.len();
    }
    output::print_lines([match (removed, left) {
        (0, 0) => "Every baseline has a test.".to_owned(),
        (removed, 0) => format!("Removed {removed}."),
        (removed, left) => {
            format!("Removed {removed}; {left} to remove: `{} baselines prune --accept`", called::name())
        }
    }])?;
    Ok(ExitCode::from(u8::from(left > 0 && !is_interactive())))
}

/// Runs the tests, which add the baselines that they use to the list. A failed run may not have used every baseline. A
/// test that cannot add to the list removes the list.
fn tested(list: &Path, args: &[OsString]) -> Result<Used, CommandFailure> {
    let cannot = |what: &str, error: &io::Error| {
        CommandFailure::usage(format!("nothing is removed: cannot {what} {}: {error}", list.display()))
    };
    File::create_new(list).map_err(|error| cannot("write", &error))?;
    let mut command = Command::new(cargo());
    command.arg("test").args(args).env("MEMTRACE_BASELINES_USED", list);
    let status = command.status().map_err(|error| CommandFailure::usage(format!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(CommandFailure::usage("nothing is removed, because the tests did not all pass"));
    }
    Ok(parsed(&std::fs::read_to_string(list).map_err(|error| cannot("read", &error))?))
}

/// Parses lines of the form `FILE\tDEVICE\tNAME`.
fn parsed(list: &str) -> Used {
    let mut used = Used::new();
    for line in list.lines() {
        if let [file, device, name] = line.splitn(3, '\t').collect::<Vec<_>>()[..] {
            used.entry((file.into(), device.to_owned())).or_default().insert(name.to_owned());
        }
    }
    used
}

/// The entries of measured devices that no test used and that the source file does not name.
fn unused<'a>(file: &Path, used: &Used, entries: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    // `tests/model.rs` for `tests/model.peaks.txt`.
    let source = file.with_extension("").with_extension("rs");
    let source = std::fs::read_to_string(source).unwrap_or_default();
    let is_unused = |(name, device): &(&str, &str)| {
        let names = used.get(&(file.to_owned(), (*device).to_owned()));
        names.is_some_and(|names| !names.contains(*name)) && !source.contains(*name)
    };
    entries.filter(is_unused).map(|(name, device)| (name.to_owned(), device.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_test_used_and_no_source_names_is_unused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.peaks.txt");
        std::fs::write(folder.path().join("model.rs"), "assert_peak!(baseline = \"ignored\", f())").unwrap();
        let used = parsed(&format!("{0}\tcpu\tused\n{0}\tcpu\twith\ttab\n", file.display()));
        let entries = [("used", "cpu"), ("gone", "cpu"), ("ignored", "cpu"), ("with\ttab", "cpu"), ("gone", "cuda:0")];
        assert_eq!(unused(&file, &used, entries.into_iter()), [("gone".to_owned(), "cpu".to_owned())]);
        assert!(unused(Path::new("/other.peaks.txt"), &used, entries.into_iter()).is_empty());
    }
}
