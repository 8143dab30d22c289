//! Baselines, the list of peaks and the summary on a disk that is full at each call in turn.

use std::fs;
use std::path::PathBuf;

use super::child::Ended;
use super::full_disk::{Failing, library};
use super::{CI, MORE, PLAIN, Package, UPDATE};

const FILES: [&str; 3] = ["tests/baselines.peaks.txt", "peaks.json", "summary.md"];
/// Somebody else's part of the summary.
const BUILD: &str = "# Build\nfine\n";

struct FullDisk {
    package: Package,
    beside: tempfile::TempDir,
    shim: PathBuf,
}

impl FullDisk {
    fn new() -> Self {
        let (package, beside) = (Package::new(), tempfile::tempdir().unwrap());
        let shim = library(beside.path());
        Self { package, beside, shim }
    }

    /// A test that updates its baseline, and has so many bytes more than at first. From this number on calls fail, if there is one.
    fn run(&self, more: &str, number: u64, failing: Failing) -> Ended {
        let path = |name: &str| self.package.path(name).display().to_string();
        let disk = format!("{}:{number}:{}", self.package.folder.path().display(), failing as i32);
        let (peaks, summary, library) = (path(FILES[1]), path(FILES[2]), self.shim.display().to_string());
        let failed = self.failed().display().to_string();
        let variables = [
            ("MEMTRACE_PEAKS", &*peaks),
            ("MEMTRACE_SUMMARY", &summary),
            ("FULL_DISK", &disk),
            ("FULL_DISK_FAILED", &failed),
            ("LD_PRELOAD", &library),
            (MORE, more),
            UPDATE,
        ];
        self.package.run(&PLAIN, &variables)
    }

    /// What the library writes if a call failed.
    fn failed(&self) -> PathBuf {
        self.beside.path().join("failed")
    }

    fn texts(&self) -> [String; 3] {
        FILES.map(|name| fs::read_to_string(self.package.path(name)).unwrap_or_default())
    }

    fn put(&self, texts: &[String; 3]) {
        FILES.iter().zip(texts).for_each(|(name, text)| fs::write(self.package.path(name), text).unwrap());
    }

    /// How many files there are, in the package and among its tests.
    fn files(&self) -> usize {
        [".", "tests"].map(|folder| fs::read_dir(self.package.path(folder)).unwrap().count()).iter().sum()
    }
}

/// Each file is what it was, or has what it should get.
fn check_whole(found: &[String; 3], older: &str, newer: &str, failing: Failing, case: &str) {
    assert!(found[0] == older || found[0] == newer, "{case}: {}", found[0]);
    let rows = serde_json::from_str::<Vec<serde_json::Value>>(&found[1]);
    assert!(rows.is_ok_and(|rows| rows.len() == 1), "{case}: {}", found[1]);
    let summary = &found[2];
    assert!(summary.starts_with(BUILD), "{case}: {summary}");
    // Where the disk goes on failing, not even the old rows can be put back.
    let is_table = summary.ends_with("end of peaks -->\n") && summary.matches("| `forward` |").count() == 1;
    assert!(is_table || failing == Failing::FromThenOn, "{case}: {summary}");
}

#[test]
fn a_full_disk_loses_nothing_of_baselines_and_lists() {
    let disk = FullDisk::new();
    fs::write(disk.package.path(FILES[2]), BUILD).unwrap();
    disk.run("0", u64::MAX >> 1, Failing::Once).well();
    let older = disk.texts();
    disk.run("5000", u64::MAX >> 1, Failing::Once).well();
    let (newer, files, mut calls) = (disk.texts(), disk.files(), 0);
    assert!(older.iter().zip(&newer).all(|(older, newer)| older != newer));
    for failing in [Failing::Once, Failing::FromThenOn] {
        for number in 1.. {
            disk.put(&older);
            let child = disk.run("5000", number, failing);
            let case = format!("{failing:?}, call {number}: {child}");
            if fs::remove_file(disk.failed()).is_err() {
                assert!(child.status.success() && disk.texts() == newer, "{case}");
                break;
            }
            check_whole(&disk.texts(), &older[0], &newer[0], failing, &case);
            assert!(child.said("No space left") && FILES.iter().any(|name| child.said(name)), "{case}");
            assert_eq!(disk.files(), files, "{case}: nothing else stays");
            calls += 1;
        }
    }
    eprintln!("{calls} full disks");
}

/// `prune` takes the baselines that are not in the list for those without a test: a list with gaps must not stay.
#[test]
fn a_list_of_used_baselines_that_misses_one_is_removed() {
    let disk = FullDisk::new();
    disk.run("0", u64::MAX >> 1, Failing::Once).well();
    let list = disk.package.path("used");
    let shown = list.display().to_string();
    for failing in [Failing::Once, Failing::FromThenOn] {
        fs::write(&list, "").unwrap();
        let full = format!("{shown}:1:{}", failing as i32);
        let shim = disk.shim.display().to_string();
        let variables = [("MEMTRACE_BASELINES_USED", &*shown), ("FULL_DISK", &full), ("LD_PRELOAD", &shim), CI];
        let child = disk.package.run(&PLAIN, &variables);
        assert!(child.status.success() && child.said("no baseline is removed"), "{child}");
        assert!(!list.exists(), "{failing:?}");
    }
}
