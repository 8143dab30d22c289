//! Programs that run with more rights than their user ignore memtrace's variables.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use memtrace::snapshot::CudaState;
use memtrace::{Device, is_recording};

use crate::child::{Ended, command_of, copy_of_this_program, ended, if_child, test_name};
use crate::training::say;

/// A user id that is not root and owns nothing.
const NOBODY: u32 = 65534;

/// Only root may read it.
const SECRET: &str = "root:the-secret:1:2";

fn runs_with_others_rights() -> bool {
    // SAFETY: has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// This test in a program that belongs to root and runs as root (set-user-id), started by another user.
fn set_user_id(folder: &Path) -> Command {
    let program = folder.join("program");
    copy_of_this_program(&program);
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let mut command = command_of(&program, &test_name());
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

/// Runs the child; `None`, with a message, where the system has no set-user-id programs.
fn with_rights(command: &mut Command) -> Option<Ended> {
    let child = ended(command).well();
    if child.said("no rights but its own") {
        eprintln!("skipped: set-user-id has no effect in the folder for temporary files");
        return None;
    }
    Some(child)
}

fn is_root() -> bool {
    // SAFETY: has no preconditions.
    let root = unsafe { libc::geteuid() == 0 };
    if !root {
        eprintln!("skipped: only root can make a program that runs as root");
    }
    root
}

#[test]
fn a_set_user_id_program_reads_and_writes_no_file_that_a_variable_names() {
    if_child(|| {
        if !runs_with_others_rights() {
            return say("no rights but its own");
        }
        match memtrace::init() {
            Ok(recording) => say(&format!("recording: {recording}")),
            Err(error) => say(&error.to_string()),
        }
    });
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (secret, out) = (dir.path().join("secret"), dir.path().join("new"));
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let mut command = set_user_id(dir.path());
    command.env("MEMTRACE", "1").env("MEMTRACE_OUT", out.join("report.txt"));
    let Some(child) = with_rights(&mut command) else { return };
    assert!(child.said("recording: false") && !out.exists(), "{child}");
    let Some(child) = with_rights(command.env("MEMTRACE_RULES", &secret)) else { return };
    assert!(child.said("recording: false") && !child.said("secret"), "{child}");
}

#[test]
fn a_set_user_id_program_ignores_the_variable_that_disables_memtrace() {
    if_child(|| {
        if !runs_with_others_rights() {
            return say("no rights but its own");
        }
        let session = memtrace::start().unwrap();
        assert!(is_recording());
        let snapshot = session.snapshot();
        assert!(snapshot.device(Device::Cpu).is_some());
        if cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")) {
            assert_ne!(snapshot.health.cuda.state, CudaState::TurnedOff);
        }
    });
    if is_root() {
        let dir = tempfile::tempdir().unwrap();
        with_rights(set_user_id(dir.path()).env("MEMTRACE", "off"));
    }
}
