//! Files that the tool writes, on a disk that is full at each call in turn: an error that names the file and the exit code 2. What
//! was there stays whole, and nothing of the file stays.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../../tests/support/full_disk.rs"]
mod full_disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use full_disk::{Failing, library};
use tempfile::TempDir;

/// Commands, and the files that they make.
const WRITING: [(&[&str], &str); 15] = [
    (&["export", "--to", "pytorch"], "out.pickle"),
    (&["export", "--to", "pytorch"], "out.pickle.gz"),
    (&["export", "--to", "chrome"], "out.trace.json"),
    (&["export", "--to", "layout"], "out.layout.json"),
    (&["export", "--to", "folded"], "out.folded"),
    (&["export", "--to", "pprof"], "out.pb.gz"),
    (&["export", "--to", "dhat"], "out.dhat.json"),
    (&["export", "--to", "json"], "out.json"),
    (&["export", "--to", "parquet"], "tables"),
    (&["export", "--to", "csv"], "tables"),
    (&["flamegraph"], "out.svg"),
    (&["timeline"], "out.svg"),
    (&["timeline", "--by", "line"], "out.svg"),
    (&["view", "--no-open"], "page.html"),
    (&["export", "copies", "--to", "folded"], "several"),
];

/// A folder with a recording, two copies of it, and the shim beside it.
struct Here {
    folder: TempDir,
    beside: TempDir,
    shim: PathBuf,
}

impl Here {
    fn new() -> Self {
        let (folder, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
        fs::create_dir(folder.path().join("copies")).unwrap();
        for copy in ["run.memtrace", "copies/one.memtrace", "copies/two.memtrace"] {
            fs::copy(&recording, folder.path().join(copy)).unwrap();
        }
        let shim = library(beside.path());
        Self { folder, beside, shim }
    }

    /// The command and its output file; calls fail from this number on.
    fn run(&self, words: &[&str], out: &str, number: u64, failing: Failing) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.arg("memtrace").args(words).args(["-o", out]).current_dir(&self.folder);
        if !words.contains(&"copies") {
            command.arg("run.memtrace");
        }
        let disk = format!("{}:{number}:{}", self.folder.path().display(), failing as i32);
        command.env("FULL_DISK", disk).env("FULL_DISK_FAILED", self.failed()).env("LD_PRELOAD", &self.shim);
        command.output().unwrap()
    }

    /// What the library writes if a call failed.
    fn failed(&self) -> PathBuf {
        self.beside.path().join("failed")
    }

    /// Whether a call failed since the last time.
    fn has_failed(&self) -> bool {
        fs::remove_file(self.failed()).is_ok()
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        files_below(self.folder.path(), &mut found);
        found.sort();
        found
    }
}

/// Folders have no contents.
fn files_below(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let is_folder = path.is_dir();
        found.push((path.clone(), if is_folder { Vec::new() } else { fs::read(&path).unwrap() }));
        if is_folder {
            files_below(&path, found);
        }
    }
}

/// Numbers of calls: with `MEMTRACE_CASES` each, otherwise fewer of those that come late.
fn numbers() -> impl Iterator<Item = u64> {
    let step = if std::env::var_os("MEMTRACE_CASES").is_some() { u64::MAX } else { 8 };
    std::iter::successors(Some(1), move |number| Some(number + 1 + number / step))
}

/// Returns how many calls were tried.
fn sweep(words: &[&str], out: &str, failing: Failing) -> u64 {
    let here = Here::new();
    let is_folder = ["tables", "several"].contains(&out);
    let older = here.folder.path().join(if is_folder { format!("{out}/older") } else { out.to_owned() });
    fs::create_dir_all(older.parent().unwrap()).unwrap();
    fs::write(&older, "older").unwrap();
    let before = here.files();
    for (tried, number) in (0..).zip(numbers()) {
        let output = here.run(words, out, number, failing);
        let errors = String::from_utf8(output.stderr).unwrap();
        let case = format!("{words:?} {out}, {failing:?}, call {number}: {errors}");
        if !here.has_failed() {
            assert!(output.status.success() && here.files().len() > before.len(), "{case}");
            return tried;
        }
        assert_eq!(output.status.code(), Some(2), "{case}");
        let name = out.split('.').next().unwrap();
        assert!(errors.contains("error: ") && errors.contains(name) && errors.contains("No space left"), "{case}");
        // Of several recordings, those before the one that failed are whole.
        let after = here.files();
        if out == "several" {
            assert!(before.iter().all(|file| after.contains(file)) && after.iter().all(is_whole), "{case}");
            fs::remove_dir_all(here.folder.path().join(out)).unwrap();
            fs::create_dir(here.folder.path().join(out)).unwrap();
            fs::write(&older, "older").unwrap();
        } else {
            assert!(after == before, "{case}: {:?}", after.iter().map(|file| &file.0).collect::<Vec<_>>());
        }
    }
    unreachable!("a disk is full at some call only")
}

/// No temporary file, and none without contents.
fn is_whole((path, bytes): &(PathBuf, Vec<u8>)) -> bool {
    !path.to_string_lossy().contains(".memtrace-") && (path.is_dir() || !bytes.is_empty())
}

#[test]
fn a_file_that_does_not_fit_is_named_and_what_was_there_stays() {
    let mut calls = 0;
    for (words, out) in WRITING {
        for failing in [Failing::Once, Failing::FromThenOn] {
            let tried = sweep(words, out, failing);
            assert!(tried >= 3, "{words:?}: it is made, written and synced");
            calls += tried;
        }
    }
    eprintln!("{} commands, {calls} full disks", WRITING.len());
}

#[test]
fn interrupted_and_short_writes_make_the_same_files() {
    for (words, out) in WRITING {
        let made = [Failing::Once, Failing::Interrupted].map(|failing| {
            let here = Here::new();
            let output = here.run(words, out, u64::from(u32::MAX), failing);
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            let files = here.files();
            let relative = |path: &PathBuf| path.strip_prefix(here.folder.path()).unwrap().to_owned();
            files.iter().map(|(path, bytes)| (relative(path), bytes.clone())).collect::<Vec<_>>()
        });
        let [plain, interrupted] = made;
        assert!(plain == interrupted, "{words:?} {out}");
    }
}
