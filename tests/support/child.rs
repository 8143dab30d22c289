//! Tests in their own processes: starts this test program again with the name of the calling test.
//!
//! The child runs the test up to its body, runs the body, and exits. Code before the body therefore runs in both
//! processes, and the body stays in the test.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![expect(unsafe_code, reason = "`alarm` is a C function")]

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The variable with the child's test.
const CHILD: &str = "MEMTRACE_TEST_CHILD";

/// Printed by a child whose body returned.
pub(crate) const AT_THE_END: &str = "the child's test passed";

/// A child that runs for this long counts as hanging.
const PATIENCE_SECONDS: u32 = 240;

unsafe extern "C" {
    /// The kernel ends the process after this time, even if the process waits for a lock.
    safe fn alarm(seconds: u32) -> u32;
}

/// Runs `body` in a child with these variables and asserts that it returns. Does not return in the child.
#[track_caller]
pub(crate) fn in_child(variables: &[(&str, &str)], body: impl FnOnce()) -> Ended {
    if_child(body);
    ended(&mut command(variables)).well()
}

/// In a child, runs `body` and ends the process; elsewhere does nothing. It is for tests that start the child
/// themselves.
pub(crate) fn if_child(body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    alarm(PATIENCE_SECONDS);
    #[cfg(target_os = "linux")]
    harness_waits();
    body();
    assert_eq!(memtrace::shell::locks_out_of_order(), 0);
    eprintln!("{AT_THE_END}");
    std::process::exit(0);
}

/// Waits until the harness's thread sleeps, as it does until the test ends. Then only the body allocates.
#[cfg(target_os = "linux")]
fn harness_waits() {
    let stat = format!("/proc/self/task/{}/stat", std::process::id());
    // The state follows the thread's name, which is in parentheses.
    let state = || std::fs::read_to_string(&stat).unwrap().rsplit_once(") ").unwrap().1.chars().next();
    while state() != Some('S') {
        std::thread::yield_now();
    }
}

/// The calling test as a child, with these variables and without other variables of memtrace.
pub(crate) fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = command_of(&std::env::current_exe().unwrap(), &test_name());
    command.envs(variables.iter().copied());
    command
}

/// Like [`command`], for a copy of the test program, or from a thread that is not the test's.
pub(crate) fn command_of(program: &Path, test: &str) -> Command {
    let mut command = self::program(program);
    // Quiet, because the harness would print the test's name first.
    command.args([test, "--exact", "--nocapture", "--quiet", "--test-threads=1"]).env(CHILD, test);
    command
}

/// Copies the test program in another process. If this process wrote the copy, a test that forks at the same time would
/// hold it open, and a program that is open for writing cannot be run.
pub(crate) fn copy_of_this_program(to: &Path) {
    let status = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(to).status().unwrap();
    assert!(status.success(), "{status}");
}

/// Cargo's target folder, which contains this program.
pub(crate) fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let is_cargos = |folder: &&Path| [".rustc_info.json", "CACHEDIR.TAG"].iter().any(|name| folder.join(name).exists());
    program.ancestors().find(is_cargos).unwrap().to_owned()
}

/// A test program without variables of memtrace, except those that make tests longer and check every stack.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    let is_kept = |name: &str| ["MEMTRACE_CASES", "MEMTRACE_CHECK_STACKS"].contains(&name);
    let is_memtraces = |name: &str| name.starts_with("MEMTRACE") && !is_kept(name);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_memtraces(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// The name of the test on this thread.
pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap().to_owned()
}

/// A child's exit status and output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) errors: String,
}

/// Runs a child until it ends.
pub(crate) fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, out: text(output.stdout), errors: text(output.stderr) }
}

impl Ended {
    /// Panics unless the body returned.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert!(self.status.success() && self.errors.contains(AT_THE_END), "{self}");
        self
    }

    pub(crate) fn said(&self, text: &str) -> bool {
        self.out.contains(text) || self.errors.contains(text)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the child ended: {}\n{}\n{}", self.status, self.out, self.errors)
    }
}

/// Waits for a condition on another thread or in another process.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(100), "not in 100 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
