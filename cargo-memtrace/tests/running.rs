//! `run` as a user runs it, with a program that contains memtrace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The program that the other tests record: they run a copy of this file.
#[test]
#[ignore = "a program for the other tests"]
fn program() {
    let block = std::hint::black_box(vec![1u8; 3 << 20]);
    let code = std::env::var("TEST_CODE").unwrap_or_default();
    println!("{} {code}", block.len());
    match code.parse() {
        Ok(code) => std::process::exit(code),
        Err(_) => std::thread::sleep(Duration::from_secs(1000)),
    }
}

/// A folder with a copy of the program, outside of any package.
fn folder_with_program() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
    folder
}

/// `run` of the program, which ends with this code.
fn run(folder: &TempDir, code: &str, options: &[&str]) -> Command {
    let program = ["--", "--exact", "program", "--ignored", "--nocapture"];
    let mut command = memtrace(folder, &[&["run", "--exec", "./program"], options, &program].concat());
    command.env("TEST_CODE", code);
    command
}

fn memtrace(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").env_remove("COLUMNS");
    command.env_remove("CARGO_TARGET_DIR");
    command
}

fn outputs(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn recordings(folder: &TempDir) -> Vec<String> {
    let files = fs::read_dir(folder.path().join("target/memtrace")).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_programs_output_and_exit_code_are_its_own_and_the_answer_is_on_stderr() {
    let folder = folder_with_program();
    let output = run(&folder, "7", &[]).output().unwrap();
    let (out, errors) = outputs(&output);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert!(out.ends_with("3145728 7\n"), "{out}");
    for expected in
        ["Peak ", "running.rs:18", "recorded to target/memtrace/program-1.memtrace", "next: cargo memtrace report"]
    {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
}

#[test]
fn a_recording_has_names_and_resident_memory_after_the_program_is_gone() {
    let folder = folder_with_program();
    run(&folder, "0", &[]).output().unwrap();
    fs::remove_file(folder.path().join("program")).unwrap();
    let (out, errors) = outputs(&memtrace(&folder, &["report"]).output().unwrap());
    assert!(out.contains("running.rs:18 (running::program)"), "{out} {errors}");
    assert!(out.contains("Resident memory") && out.contains("of it mapped files and code"), "{out}");
}

#[test]
fn recordings_are_numbered_and_the_newest_are_kept() {
    let folder = folder_with_program();
    for _ in 0..3 {
        run(&folder, "0", &["--keep", "2"]).output().unwrap();
    }
    assert_eq!(recordings(&folder), ["program-2.memtrace", "program-3.memtrace"]);
    let named = ["--out", "here.memtrace", "--min-size", "4 MiB"];
    let (_, errors) = outputs(&run(&folder, "0", &named).output().unwrap());
    assert!(errors.contains("recorded to here.memtrace") && !errors.contains("running.rs:18"), "{errors}");
    let again = run(&folder, "0", &named).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(outputs(&again).1.contains("here.memtrace exists"));
}

#[test]
fn a_signal_reaches_the_program_and_what_it_recorded_is_kept() {
    let folder = folder_with_program();
    let mut child = run(&folder, "wait", &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("3145728 wait")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let (_, errors) = outputs(&output);
    assert_eq!(output.status.code(), Some(128 + 15), "{errors}");
    assert!(errors.contains("program was ended by signal 15; what was recorded until then is kept"), "{errors}");
    assert_eq!(recordings(&folder), ["program-1.memtrace"]);
}
