//! The program is what it would be without the runner.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::place::{Place, Said};

#[test]
fn the_program_takes_the_place_of_the_runner() {
    let place = Place::new();
    let child = place.runner().arg(place.plain()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let number = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("process={number}\n")), "{output:?}");
}

#[test]
fn arguments_and_folder_arrive_as_they_are() {
    let place = Place::new();
    let arguments = ["--exact", "two words", "", "--which", "--help", "*"];
    let said = Said::by(place.runner().arg(place.linked()).args(arguments));
    let arrived: Vec<_> = said.out.lines().filter_map(|line| line.strip_prefix("argument=")).collect();
    assert_eq!(arrived, arguments);
    assert_eq!(said.line("folder"), place.path.to_str().unwrap());
}

#[test]
fn its_end_is_the_programs() {
    let place = Place::new();
    for program in [place.linked(), place.plain()] {
        assert_eq!(Said::by(place.runner().arg(&program).args(["exit", "101"])).code(), Some(101));
        for signal in [libc::SIGABRT, libc::SIGTERM, libc::SIGPIPE] {
            let said = Said::by(place.runner().arg(&program).args(["raise", &signal.to_string()]));
            assert_eq!(said.output.status.signal(), Some(signal), "{said:?}");
        }
    }
}

#[test]
fn the_simulated_driver_stands_in_front_of_the_path() {
    let place = Place::new();
    let simulated = place.path.join("simulated");
    let said = Said::by(place.runner().arg(place.linked()));
    assert_eq!(said.line("path"), format!("{}:{}", simulated.display(), place.path.join("system").display()));
    // An empty one would mean the current folder.
    let said = Said::by(place.runner().env("LD_LIBRARY_PATH", "").env("MEMTRACE_GPU", "simulated").arg(place.linked()));
    assert_eq!(said.line("path"), simulated.to_str().unwrap());
}

#[test]
fn a_relative_program_is_found() {
    let place = Place::new();
    place.linked();
    Said::by(place.runner().arg("./linked-0123456789abcdef"))
        .assert_runner_said("simulated GPU of 80 GiB (cuInit of the NVIDIA driver answers CUDA_ERROR_NO_DEVICE)");
}

#[test]
fn lists_and_reports_of_libtest_are_untouched() {
    let place = Place::new();
    let tests = std::env::current_exe().unwrap();
    for arguments in [&["--list", "--format", "terse"][..], &["--list"], &["--exact", "process::helper"]] {
        let alone = Said::by(Command::new(&tests).args(arguments));
        let run = Said::by(place.runner().arg(&tests).args(arguments));
        assert_eq!((timeless(&run.out), run.code()), (timeless(&alone.out), alone.code()));
        assert_eq!(run.errors.lines().count(), 1, "{run:?}");
    }
}

#[test]
fn helper() {}

/// Without the time that it took.
fn timeless(text: &str) -> String {
    text.split("finished in").next().unwrap_or_default().to_owned()
}

#[test]
fn log_and_faults_of_the_simulated_driver_are_the_programs_alone() {
    let place = Place::new();
    let log = place.path.join("log-%p");
    let mut runner = place.runner();
    runner.env("MEMTRACE_CUSIM_LOG", &log).env("MEMTRACE_CUSIM_FAULTS", "fail@init");
    let said = Said::by(runner.arg(place.linked()));
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "-1"));
    let logs = std::fs::read_dir(&place.path).unwrap().flatten();
    let logs: Vec<_> = logs.filter(|entry| entry.file_name().to_string_lossy().starts_with("log-")).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
}
