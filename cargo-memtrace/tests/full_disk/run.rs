//! `run`: the program ends as without memtrace, and what was recorded before is readable.

use std::fs;
use std::process::Output;

use super::full_disk::Failing;
use super::{Disk, TOOL, text};

/// The arguments with which a copy of this file is the test below.
const TEST: [&str; 4] = ["--exact", "run::program", "--ignored", "--nocapture"];

#[test]
#[ignore = "a program for the other tests"]
fn program() {
    let block = std::hint::black_box(vec![1u8; 3 << 20]);
    println!("{} bytes", block.len());
    std::process::exit(7);
}

const OLDER: &str = "target/memtrace/program-1.memtrace";

/// With the program, and an older recording of it.
fn disk() -> Disk {
    let disk = Disk::with_copies(&[OLDER]);
    let (this, program) = (std::env::current_exe().unwrap(), disk.path("program"));
    // A copy has 70 MB.
    fs::hard_link(&this, &program).or_else(|_| fs::copy(&this, &program).map(drop)).unwrap();
    disk
}

fn run(disk: &Disk, options: &[&str], failing_in: &str, number: u64, failing: Failing) -> Output {
    let words = [&["run", "--exec", "./program"], options, &["--"], &TEST].concat();
    disk.full(&mut disk.tool(&words), failing_in, number, failing)
}

/// What the program and the tool did when these calls failed.
fn check(disk: &Disk, output: &Output, name: &str, failed: &[String], case: &str) {
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    let is_started = !out.is_empty();
    // The list of a `run` comes before the program.
    assert!(is_started || failed.iter().all(|call| call.contains(".run") || call.starts_with("mkdir ")), "{case}");
    assert_eq!(output.status.code(), Some(if is_started { 7 } else { 2 }), "{case}");
    assert!(!is_started || out.ends_with("3145728 bytes\n"), "{case}: {out}");
    assert!(errors.lines().any(|line| line.contains("No space left") && line.contains(name)), "{case}");
    // Which name a pattern became, only the list says.
    let is_recorded = is_started && failed.len() == 1 && failed[0].ends_with(".memtrace.run");
    assert!(!is_recorded || errors.contains("recorded to "), "{case}");
    for path in disk.paths() {
        let path = path.display().to_string();
        assert!(!path.contains(".run") && !path.contains(".memtrace-"), "{case}: {path} is left");
        if path.ends_with(".memtrace") && !path.ends_with(OLDER) {
            let read = disk.tool(&["report", &path]).output().unwrap();
            let is_empty = text(&read.stderr).contains("nothing was recorded in");
            assert!(read.status.success() || is_empty, "{case}: {path}: {}", text(&read.stderr));
        }
    }
}

/// How many calls of one of the two programs failed.
fn sweep(options: &[&str], name: &str, failing_in: &str, failing: Failing) -> u64 {
    let older = fs::read(disk().path(OLDER)).unwrap();
    for number in 1.. {
        let disk = disk();
        let output = run(&disk, options, failing_in, number, failing);
        let failed = disk.failed();
        let case =
            format!("{options:?}, {failing_in}, {failing:?}, call {number}: {failed:?}: {}", text(&output.stderr));
        if failed.is_empty() {
            assert_eq!(output.status.code(), Some(7), "{case}");
            return number - 1;
        }
        check(&disk, &output, name, &failed, &case);
        assert!(fs::read(disk.path(OLDER)).unwrap() == older, "{case}");
    }
    unreachable!("a disk is full at some call only")
}

/// In the tool and in the program. Messages name what is recorded by `name`.
fn check_all(options: &[&str], name: &str) {
    let mut sum = 0;
    for failing_in in [TOOL, "program"] {
        for failing in [Failing::Once, Failing::FromThenOn] {
            let tried = sweep(options, name, failing_in, failing);
            assert!(tried > 2, "{failing_in} {failing:?}: there are calls: {tried}");
            sum += tried;
        }
    }
    eprintln!("{options:?}: {sum} full disks");
}

#[test]
fn a_program_that_is_recorded_ends_as_without_us() {
    check_all(&[], "program-2");
}

#[test]
fn a_program_with_a_snapshot_at_its_end_ends_as_without_us() {
    check_all(&["-o", "new/b.pickle"], "b.pickle");
}

#[test]
fn a_program_that_fills_in_the_name_ends_as_without_us() {
    check_all(&["-o", "%n.svg"], ".svg");
}
