//! The tool on a disk that is full at each call for a file in turn: an error that names the file, and a loss of nothing that was there.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod baselines;
#[path = "../../../tests/support/full_disk.rs"]
mod full_disk;
mod run;
mod standard_output;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use full_disk::{Failing, library};
use tempfile::TempDir;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The name under which the tool is started.
const TOOL: &str = "cargo-memtrace";
/// A number that no call has.
const NEVER: u64 = u32::MAX as u64;

/// A folder whose disk can be full, and another one for what is said of it.
struct Disk {
    folder: TempDir,
    beside: TempDir,
}

/// The library in C, compiled once for each test.
fn shim() -> PathBuf {
    thread_local! {
        static COMPILED: (TempDir, PathBuf) = {
            let folder = tempfile::tempdir().unwrap();
            let library = library(folder.path());
            (folder, library)
        };
    }
    COMPILED.with(|(_, library)| library.clone())
}

impl Disk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), beside: tempfile::tempdir().unwrap() }
    }

    /// With `everything.memtrace` under these names.
    fn with_copies(names: &[&str]) -> Self {
        let disk = Self::new();
        let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
        for name in names {
            fs::create_dir_all(disk.path(name).parent().unwrap()).unwrap();
            fs::copy(&recording, disk.path(name)).unwrap();
        }
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The tool with these arguments, in the folder.
    fn tool(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.arg("memtrace").args(words).current_dir(&self.folder).env("NO_COLOR", "1").env_remove("COLUMNS");
        command.env_remove("CARGO_TARGET_DIR");
        command
    }

    /// Runs the command; the calls of this program fail from this number on.
    fn full(&self, command: &mut Command, program: &str, number: u64, failing: Failing) -> Output {
        let disk = format!("{}:{number}:{}", self.folder.path().display(), failing as i32);
        let list = |name: &str| self.beside.path().join(name);
        command.env("FULL_DISK_CALLS", list("calls")).env("FULL_DISK_FAILED", list("failed"));
        command.env("FULL_DISK", disk).env("FULL_DISK_PROGRAM", program).env("LD_PRELOAD", shim());
        command.output().unwrap()
    }

    /// The calls that have failed since the last time, each `CALL PATH`.
    fn failed(&self) -> Vec<String> {
        taken(&self.beside.path().join("failed"))
    }

    /// The calls since the last time, that of number 1 first.
    fn calls(&self) -> Vec<String> {
        taken(&self.beside.path().join("calls"))
    }

    /// All files and folders.
    fn paths(&self) -> Vec<PathBuf> {
        let mut found = vec![self.folder.path().to_owned()];
        let mut read = 0;
        while let Some(path) = found.get(read) {
            let below: Vec<_> = fs::read_dir(path).into_iter().flatten().map(|file| file.unwrap().path()).collect();
            found.extend(below);
            read += 1;
        }
        found.sort();
        found
    }

    /// The same with their contents, of which folders have none.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.paths().into_iter().map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
    }
}

/// The lines of a file, which is removed.
fn taken(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let _ = fs::remove_file(file);
    text.lines().map(str::to_owned).collect()
}

/// Numbers of the calls: of late ones that write each only with `MEMTRACE_CASES`, otherwise one in eight.
fn numbers(calls: &[String]) -> Vec<u64> {
    let is_each = std::env::var_os("MEMTRACE_CASES").is_some();
    let is_one = |number: &u64| {
        is_each || *number < 8 || number.is_multiple_of(8) || !calls[*number as usize - 1].contains("write")
    };
    (1..=calls.len() as u64).filter(is_one).collect()
}

/// What was printed.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
