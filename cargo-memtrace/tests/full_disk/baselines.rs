//! `baselines`: each peak is in the baselines or still to review, and the next call brings it there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use memtrace_core::baseline::{BaselineEntry, Baselines};

use super::full_disk::Failing;
use super::{Disk, NEVER, TOOL, text};

const OLD: &str = "[forward] cpu\npeak 100,000\n\n[gone] cpu\npeak 7\n";
const NEW: &str = "[backward] cpu\npeak 5,000\n\n[forward] cpu\npeak 120,000\n\n[loss] cpu\npeak 3\n";
const BASELINES: &str = "tests/model.peaks.txt";
const MANIFEST: &str = "[package]\nname = \"p\"\nedition = \"2024\"\n[workspace]\n";

/// A test that uses the baseline `forward`, as memtrace notes it.
const TEST: &str = r#"
#[test]
fn uses() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model.peaks.txt");
    std::fs::write(std::env::var("MEMTRACE_BASELINES_USED").unwrap(), format!("{file}\tcpu\tforward\n")).unwrap();
}
"#;

/// A package with changed peaks.
fn package() -> Disk {
    let disk = Disk::new();
    ["tests", "src"].iter().for_each(|folder| fs::create_dir(disk.path(folder)).unwrap());
    for (file, text) in [("Cargo.toml", MANIFEST), ("src/lib.rs", ""), ("tests/model.rs", TEST)] {
        fs::write(disk.path(file), text).unwrap();
    }
    put(&disk);
    disk
}

/// The baselines before, and what is to review.
fn put(disk: &Disk) {
    fs::write(disk.path(BASELINES), OLD).unwrap();
    let review = to_review(disk);
    fs::create_dir_all(review.parent().unwrap()).unwrap();
    fs::write(review, NEW).unwrap();
}

fn to_review(disk: &Disk) -> PathBuf {
    let baselines = disk.path(BASELINES).canonicalize().unwrap();
    disk.path("target/memtrace/baselines").join(baselines.strip_prefix("/").unwrap())
}

/// Before `prune` runs it: linkers do not bear the filter of renames.
fn build_test(disk: &Disk) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run"]).current_dir(&disk.folder).env_remove("CARGO_TARGET_DIR");
    assert!(cargo.output().unwrap().status.success());
}

/// The entries of a file; none if there is no file.
fn entries(file: PathBuf) -> Vec<BaselineEntry> {
    Baselines::parse(&fs::read_to_string(file).unwrap_or_default()).unwrap().entries().to_vec()
}

/// Each peak is the accepted one or the older one, and each that is not accepted can be reviewed.
fn check_whole(disk: &Disk, case: &str) {
    let (known, left) = (entries(disk.path(BASELINES)), entries(to_review(disk)));
    let named = |name: &str| known.iter().find(|entry| entry.name == name);
    for new in Baselines::parse(NEW).unwrap().entries() {
        assert!(named(&new.name) == Some(new) || left.contains(new), "{case}: {} is lost", new.name);
    }
    for old in Baselines::parse(OLD).unwrap().entries() {
        assert!(named(&old.name).is_some_and(|is| is == old || is.peak == 120_000), "{case}: {}", old.name);
    }
    let is_temporary = |(path, _): &(PathBuf, _)| path.to_string_lossy().contains(".memtrace-");
    assert!(!disk.files().iter().any(is_temporary), "{case}");
}

/// How many calls were tried.
fn sweep(words: &[&str], failing: Failing) -> u64 {
    let disk = package();
    if words.contains(&"prune") {
        build_test(&disk);
    }
    let output = disk.full(&mut disk.tool(words), TOOL, NEVER, failing);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let expected = fs::read_to_string(disk.path(BASELINES)).unwrap();
    for number in 1.. {
        put(&disk);
        let output = disk.full(&mut disk.tool(words), TOOL, number, failing);
        let (errors, failed) = (text(&output.stderr), disk.failed());
        let case = format!("{words:?}, {failing:?}, call {number}: {failed:?}: {errors}");
        if failed.is_empty() {
            return number - 1;
        }
        assert_eq!(output.status.code(), Some(2), "{case}");
        assert!(errors.contains(BASELINES) && errors.contains("No space left"), "{case}");
        if words.contains(&"prune") {
            assert_eq!(fs::read_to_string(disk.path(BASELINES)).unwrap(), OLD, "{case}");
        } else {
            check_whole(&disk, &case);
        }
        let again = disk.tool(words).output().unwrap();
        assert!(again.status.success(), "{case}: {}", text(&again.stderr));
        assert_eq!(fs::read_to_string(disk.path(BASELINES)).unwrap(), expected, "{case}");
    }
    unreachable!("a disk is full at some call only")
}

#[test]
fn no_peak_is_lost_and_the_next_call_accepts_it() {
    let commands: [(&[&str], u64); 3] = [
        (&["baselines", "update"], 12),
        (&["baselines", "review", "--accept"], 12),
        (&["baselines", "prune", "--accept"], 4),
    ];
    let mut sum = 0;
    for (words, least) in commands {
        for failing in [Failing::Once, Failing::FromThenOn] {
            let tried = sweep(words, failing);
            assert!(tried >= least, "{words:?}: each file is made, written, synced and renamed: {tried}");
            sum += tried;
        }
    }
    eprintln!("{sum} full disks");
}
