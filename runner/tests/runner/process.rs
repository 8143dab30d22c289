//! A program behaves under the runner as without it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::sandbox::{CommandOutput, Sandbox};

#[test]
fn the_program_replaces_the_runner() {
    let sandbox = Sandbox::new();
    let child = sandbox.runner().arg(sandbox.plain()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let number = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("process={number}\n")), "{output:?}");
}

#[test]
fn arguments_and_current_folder_are_unchanged() {
    let sandbox = Sandbox::new();
    let arguments = ["--exact", "two words", "", "--which", "--help", "*"];
    let said = CommandOutput::of(sandbox.runner().arg(sandbox.linked()).args(arguments));
    let arrived: Vec<_> = said.out.lines().filter_map(|line| line.strip_prefix("argument=")).collect();
    assert_eq!(arrived, arguments);
    assert_eq!(said.line("folder"), sandbox.path.to_str().unwrap());
}

#[test]
fn the_exit_status_is_the_programs() {
    let sandbox = Sandbox::new();
    for program in [sandbox.linked(), sandbox.plain()] {
        assert_eq!(CommandOutput::of(sandbox.runner().arg(&program).args(["exit", "101"])).code(), Some(101));
        for signal in [libc::SIGABRT, libc::SIGTERM, libc::SIGPIPE] {
            let said = CommandOutput::of(sandbox.runner().arg(&program).args(["raise", &signal.to_string()]));
            assert_eq!(said.output.status.signal(), Some(signal), "{said:?}");
        }
    }
}

#[test]
fn a_line_that_nobody_can_read_starts_the_program_all_the_same() {
    let sandbox = Sandbox::new();
    for program in [sandbox.linked(), sandbox.plain()] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let said = CommandOutput::of(sandbox.runner().arg(&program).args(["exit", "7"]).stderr(full));
        assert_eq!(said.code(), Some(7), "{said:?}");
        let wrong = std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(CommandOutput::of(sandbox.runner().arg("--wrong").stderr(wrong)).code(), Some(2));
    }
}

#[test]
fn the_simulated_driver_is_first_on_the_library_path() {
    let sandbox = Sandbox::new();
    let simulated = sandbox.path.join("simulated");
    let said = CommandOutput::of(sandbox.runner().arg(sandbox.linked()));
    assert_eq!(said.line("path"), format!("{}:{}", simulated.display(), sandbox.path.join("system").display()));
    // An empty entry would mean the current folder.
    let said = CommandOutput::of(
        sandbox.runner().env("LD_LIBRARY_PATH", "").env("MEMTRACE_GPU", "simulated").arg(sandbox.linked()),
    );
    assert_eq!(said.line("path"), simulated.to_str().unwrap());
}

#[test]
fn a_relative_program_path_works() {
    let sandbox = Sandbox::new();
    sandbox.linked();
    CommandOutput::of(sandbox.runner().arg("./linked-0123456789abcdef"))
        .assert_runner_said("simulated GPU of 80 GiB (cuInit of the NVIDIA driver returns CUDA_ERROR_NO_DEVICE)");
}

#[test]
fn output_of_libtest_is_unchanged() {
    let sandbox = Sandbox::new();
    let tests = std::env::current_exe().unwrap();
    for arguments in [&["--list", "--format", "terse"][..], &["--list"], &["--exact", "process::helper"]] {
        let alone = CommandOutput::of(Command::new(&tests).args(arguments));
        let run = CommandOutput::of(sandbox.runner().arg(&tests).args(arguments));
        assert_eq!((timeless(&run.out), run.code()), (timeless(&alone.out), alone.code()));
        assert_eq!(run.errors.lines().count(), 1, "{run:?}");
    }
}

#[test]
fn helper() {}

/// Removes the duration.
fn timeless(text: &str) -> String {
    text.split("finished in").next().unwrap_or_default().to_owned()
}

#[test]
fn only_the_program_sees_log_and_faults_of_the_simulated_driver() {
    let sandbox = Sandbox::new();
    let log = sandbox.path.join("log-%p");
    let mut runner = sandbox.runner();
    runner.env("MEMTRACE_CUSIM_LOG", &log).env("MEMTRACE_CUSIM_FAULTS", "fail@init");
    let said = CommandOutput::of(runner.arg(sandbox.linked()));
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "-1"));
    let logs = std::fs::read_dir(&sandbox.path).unwrap().flatten();
    let logs: Vec<_> = logs.filter(|entry| entry.file_name().to_string_lossy().starts_with("log-")).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
}
