//! Snapshots at a panic and at the exit, on a disk that is full at each call in turn: the program ends as without memtrace.

use std::fs;
use std::path::Path;

use memtrace::open;

use crate::child::{Ended, command, ended, if_child};
use crate::full_disk::{Failing, library};
use crate::support::MIB;
use crate::training::{OUT, out};

/// The child's body: ends with a panic, or with a code.
fn ends() {
    let panics = std::env::var("TEST_END").unwrap() == "panics";
    if !panics {
        memtrace::init().unwrap_or_else(|error| {
            eprintln!("{error}");
            false
        });
    }
    let session = memtrace::builder().min_size("16 KiB").dump_to(out().join("new/dump.pickle").display().to_string());
    let session = panics.then(|| session.dump_on_panic(true).start());
    if let Some(Err(error)) = &session {
        eprintln!("{error}");
    }
    let kept = vec![1u8; 3 * MIB];
    println!("{} bytes", kept.len());
    if panics {
        panic!("as the program does");
    }
    std::process::exit(3);
}

/// The child on a disk whose calls fail from this number on, and whether one did.
fn run(folder: &Path, library: &Path, end: &str, number: u64, failing: Failing) -> (Ended, bool) {
    let failed = folder.with_extension("failed");
    let mut child = command(&[("TEST_END", end), ("RUST_BACKTRACE", "0")]);
    child.env("FULL_DISK", format!("{}:{number}:{}", folder.display(), failing as i32)).env("LD_PRELOAD", library);
    child.env("FULL_DISK_FAILED", &failed).env(OUT, folder);
    if end == "exits" {
        child.env("MEMTRACE_OUT", folder.join("new/dump.pickle"));
    }
    (ended(&mut child), fs::remove_file(failed).is_ok())
}

/// How many calls failed.
fn sweep(library: &Path, end: &str, code: i32, failing: Failing) -> u64 {
    for number in 1.. {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("older.pickle"), "older").unwrap();
        let (child, has_failed) = run(folder.path(), library, end, number, failing);
        let case = format!("{end}, {failing:?}, call {number}: {child}");
        assert_eq!(child.status.code(), Some(code), "{case}");
        assert!(child.out.contains("3145728 bytes"), "{case}");
        assert_eq!(fs::read_to_string(folder.path().join("older.pickle")).unwrap(), "older", "{case}");
        let new = fs::read_dir(folder.path().join("new")).into_iter().flatten().map(|file| file.unwrap().path());
        let new: Vec<_> = new.collect();
        if !has_failed {
            assert_eq!(new, [folder.path().join("new/dump.pickle")], "{case}");
            let _ = open(&new[0]).unwrap();
            return number - 1;
        }
        assert!(child.said("No space left") && child.said("dump.pickle"), "{case}");
        assert_eq!(new.len(), 0, "{case}: {new:?}");
    }
    unreachable!("a disk is full at some call only")
}

#[test]
fn a_program_ends_as_ever_when_its_last_snapshot_does_not_fit() {
    if_child(ends);
    let beside = tempfile::tempdir().unwrap();
    let (library, mut sum) = (library(beside.path()), 0);
    for (end, code) in [("exits", 3), ("panics", 101)] {
        for failing in [Failing::Once, Failing::FromThenOn] {
            let tried = sweep(&library, end, code, failing);
            assert!(tried >= 5, "{end}: it is tried, made, written, synced and renamed");
            sum += tried;
        }
    }
    eprintln!("{sum} full disks");
}
