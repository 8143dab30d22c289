//! Files that the tool writes: an error that names the file and the exit code 2. What was there stays whole, and nothing of the
//! file stays.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::full_disk::Failing;
use super::{Disk, NEVER, TOOL, numbers, text};

/// Commands, and the files that they make.
const WRITING: [(&[&str], &str); 17] = [
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
    (&["view", "--no-open"], "new/folder/page.html"),
    (&["export", "--to", "csv"], "new/folder/tables"),
    (&["export", "copies", "--to", "folded"], "several"),
];

/// With a recording and two copies of it.
fn disk() -> Disk {
    Disk::with_copies(&["run.memtrace", "copies/one.memtrace", "copies/two.memtrace"])
}

/// The command and its output file; calls fail from this number on.
fn run(disk: &Disk, words: &[&str], out: &str, number: u64, failing: Failing) -> Output {
    let mut command = disk.tool(&[words, &["-o", out]].concat());
    if !words.contains(&"copies") {
        command.arg("run.memtrace");
    }
    disk.full(&mut command, TOOL, number, failing)
}

/// The calls of the command that makes this file, once there is an older one.
fn calls(words: &[&str], out: &str) -> Vec<String> {
    let disk = disk();
    put_older(&disk, out);
    let output = run(&disk, words, out, NEVER, Failing::Once);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    disk.calls()
}

fn put_older(disk: &Disk, out: &str) {
    let older = match out {
        "tables" | "several" => disk.path(out).join("older"),
        _ if out.contains('/') => return,
        _ => disk.path(out),
    };
    fs::create_dir_all(older.parent().unwrap()).unwrap();
    fs::write(&older, "older").unwrap();
}

/// How many calls failed.
fn sweep(words: &[&str], out: &str, failing: Failing, calls: &[String]) -> usize {
    let disk = disk();
    put_older(&disk, out);
    let (before, numbers) = (disk.files(), numbers(calls));
    for &number in &numbers {
        let output = run(&disk, words, out, number, failing);
        let (errors, failed) = (text(&output.stderr), disk.failed());
        let case = format!("{words:?} {out}, {failing:?}, call {number}, {failed:?}: {errors}");
        assert!(output.status.code() == Some(2) && !failed.is_empty(), "{case}");
        let name = out.rsplit('/').next().unwrap().split('.').next().unwrap();
        assert!(errors.contains("error: ") && errors.contains(name) && errors.contains("No space left"), "{case}");
        let mut after = disk.files();
        // Folders without a file in them may stay.
        after.retain(|(path, _)| !path.starts_with(disk.path("new")) || !path.is_dir());
        let _ = fs::remove_dir_all(disk.path("new"));
        // Of several recordings, those before the one that failed are whole.
        if out == "several" {
            assert!(before.iter().all(|file| after.contains(file)) && after.iter().all(is_whole), "{case}");
            fs::remove_dir_all(disk.path(out)).unwrap();
            put_older(&disk, out);
        } else {
            assert!(after == before, "{case}: {:?}", after.iter().map(|file| &file.0).collect::<Vec<_>>());
        }
    }
    numbers.len()
}

/// No temporary file, and none without contents.
fn is_whole((path, bytes): &(PathBuf, Vec<u8>)) -> bool {
    !path.to_string_lossy().contains(".memtrace-") && (path.is_dir() || !bytes.is_empty())
}

#[test]
fn a_file_that_does_not_fit_is_named_and_what_was_there_stays() {
    let mut sum = 0;
    for (words, out) in WRITING {
        let calls = calls(words, out);
        for kind in ["open", "write", "f", "rename"] {
            assert!(
                calls.iter().any(|call| call.starts_with(kind)),
                "{words:?}: made, written, synced, renamed: {calls:?}"
            );
        }
        for failing in [Failing::Once, Failing::FromThenOn] {
            sum += sweep(words, out, failing, &calls);
        }
    }
    eprintln!("{} commands, {sum} full disks", WRITING.len());
}

#[test]
fn interrupted_and_short_writes_make_the_same_files() {
    for (words, out) in WRITING {
        let made = [Failing::Once, Failing::Interrupted].map(|failing| {
            let disk = disk();
            let output = run(&disk, words, out, NEVER, failing);
            assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
            let files = disk.files();
            let relative = |path: &PathBuf| path.strip_prefix(disk.folder.path()).unwrap().to_owned();
            files.iter().map(|(path, bytes)| (relative(path), bytes.clone())).collect::<Vec<_>>()
        });
        let [plain, interrupted] = made;
        assert!(plain == interrupted, "{words:?} {out}");
    }
}
