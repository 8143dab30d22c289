//! Files of every format on a disk that is full at each call in turn.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use memtrace::{Snapshot, scope};

use crate::disk::Disk;
use crate::full_disk::Failing;
use crate::support::{MIB, Raw, record_large};

/// Without `operators.svg`, which needs operators.
const ENDS: [&str; 17] = [
    "memtrace",
    "memtrace.gz",
    "pickle",
    "pickle.gz",
    "trace.json",
    "layout.json",
    "folded",
    "pb.gz",
    "dhat.json",
    "json",
    "svg",
    "html",
    "txt",
    "operators.json",
    "categories.json",
    "categories.raw.json",
    "categories.svg",
];

/// Names and contents.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let named = |file: fs::DirEntry| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap());
    let mut files: Vec<_> = files.map(named).collect();
    files.sort();
    files
}

/// Returns how many calls were tried.
fn written_on_a_full_disk(disk: &Disk, snapshot: &Snapshot, end: &str, failing: Failing) -> i64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("a.{end}"));
    fs::write(&path, "older").unwrap();
    let before = files(folder.path());
    for number in 1.. {
        disk.fails(folder.path(), number, failing);
        let written = snapshot.write(&path);
        if disk.works() == 0 {
            assert_eq!(written.unwrap(), folder.path().join(format!("a-2.{end}")));
            return number;
        }
        let said = written.unwrap_err().to_string();
        let names_it = said.contains(&format!("/a-2.{end}")) && said.contains("No space left");
        assert!(names_it, "{end}, {failing:?}, call {number}: {said}");
        assert!(files(folder.path()) == before, "{end}, {failing:?}, call {number}: something else is there");
    }
    unreachable!("a disk is full at some call only")
}

#[test]
fn a_file_that_does_not_fit_is_named_and_nothing_of_it_stays() {
    Disk::in_child(|disk| {
        let session = record_large();
        let _kept: Vec<Raw> = (1..40).map(|size| scope(format!("scope {size}"), || Raw::new(size * MIB))).collect();
        let snapshot = session.snapshot();
        let mut calls = 0;
        for end in ENDS {
            for failing in [Failing::Once, Failing::FromThenOn] {
                let tried = written_on_a_full_disk(disk, &snapshot, end, failing) - 1;
                assert!(tried >= 3, "{end}: it is made, written and synced");
                calls += tried;
            }
        }
        eprintln!("{} formats, {calls} full disks", ENDS.len());
    });
}

/// What a signal interrupts, and a write that writes less than it should, is gone on with.
#[test]
fn interrupted_and_short_writes_make_the_same_files() {
    Disk::in_child(|disk| {
        let session = record_large();
        let _kept = scope("kept", || Raw::new(3 * MIB));
        let snapshot = session.snapshot();
        for end in ENDS {
            let made = [None, Some(Failing::Interrupted)].map(|failing| {
                let folder = tempfile::tempdir().unwrap();
                failing.into_iter().for_each(|failing| disk.fails(folder.path(), 1, failing));
                snapshot.write(folder.path().join(format!("a.{end}"))).unwrap();
                disk.works();
                files(folder.path())
            });
            assert!(made[0] == made[1] && made[0].len() == 1, "{end}");
        }
    });
}
