//! Programs in C that count on which descriptors they have, and on what their threads' ends do, under the preloaded
//! library.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
#![expect(unsafe_code, reason = "a system call in a child")]

#[path = "support/bare.rs"]
mod bare;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bare::bare;
use memtrace::{Device, open};

/// The first argument says what it does. What it finds wrong it prints.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void allocate(unsigned n) {
    static void *kept[4096];
    free(kept[n % 4096]);
    kept[n % 4096] = malloc(1024 + n % 5000);
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
/* Puts its own file where memtrace's might be, in which nobody writes. */
static void over(void) {
    int own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct stat file;
    double end = now() + 1.5;
    for (unsigned n = 0; now() < end; n++) {
        allocate(n);
        for (int to = 700; to < 703; to++) {
            dup2(own, to);
            if (fcntl(to, F_GETFD) < 0) puts("a descriptor is gone"), exit(1);
            close(to);
        }
        fstat(own, &file);
        if (file.st_size) puts("somebody wrote in the file"), exit(1);
    }
}
static void lowest(void) {
    double end = now() + 1.5;
    for (unsigned n = 0; now() < end; n++) {
        allocate(n);
        close(0);
        int got = open("/dev/null", O_RDONLY);
        if (got) printf("%d is not the lowest\n", got), exit(1);
    }
}
static void list(void) {
    double end = now() + 0.3;
    for (unsigned n = 0; now() < end; n++) {
        allocate(n);
        for (int other = 3; other < 1024; other++)
            if (fcntl(other, F_GETFD) >= 0) printf("%d is open\n", other), exit(1);
    }
}
static void many(void) {
    struct rlimit limit = { 1000, 1000 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int last = -1, count = 0;
    for (int got; (got = open("/dev/null", O_RDONLY)) >= 0; last = got) count++;
    printf("%d, the last is %d, %s\n", count, last, strerror(errno));
    allocate(1);
    usleep(250000);
}
static void at_exit(void) { puts("at exit"); }
static void *outlive(void *none) {
    usleep(150000);
    puts("the last thread");
    return 0;
}
int main(int count, char **arguments) {
    char *what = arguments[1];
    pthread_t thread;
    atexit(at_exit);
    allocate(1);
    if (!strcmp(what, "over")) over();
    if (!strcmp(what, "lowest")) lowest();
    if (!strcmp(what, "list")) list();
    if (!strcmp(what, "many")) many();
    if (!strcmp(what, "raw exit")) syscall(SYS_exit, 3);
    if (!strcmp(what, "thread exit")) puts("not written yet"), pthread_exit((void *)7);
    if (!strcmp(what, "outlived")) pthread_create(&thread, 0, outlive, 0), pthread_exit((void *)7);
    if (!strcmp(what, "outlived raw")) pthread_create(&thread, 0, outlive, 0), syscall(SYS_exit, 3);
    return 0;
}
"#;

/// Runs the program behind its other arguments where the system refuses a new descriptor table (2), or `close_range` (1).
const REFUSE: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **arguments) {
    unsigned unshare = arguments[1][0] == '2' ? 272 : 436;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 436, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { 5, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter)) return 99;
    setenv("LD_PRELOAD", arguments[2], 1);
    execv(arguments[3], arguments + 3);
    return 98;
}
"#;

fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, program) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-w", "-g", "-O1", "-fno-builtin", "-pthread", "-o"]).arg(&program).arg(file);
    assert!(compile.status().unwrap().success());
    program
}

fn only_three() -> std::io::Result<()> {
    // SAFETY: closes nothing yet.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

struct Programs {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(folder.path(), "app", PROGRAM);
        Self { folder, program }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = bare(program);
        command.current_dir(self.folder.path());
        // Whoever started this test may have left more open than the first three.
        // SAFETY: the child makes a system call only, which closes nothing before it executes.
        unsafe { command.pre_exec(only_three) };
        command
    }

    fn alone(&self, what: &str) -> Output {
        self.command(&self.program).arg(what).output().unwrap()
    }

    /// As `cargo memtrace run` does it. The capture is there afterwards.
    fn recorded(&self, what: &str) -> Output {
        let mut command = self.command(&self.program);
        self.end(command.arg(what).env("LD_PRELOAD", built("libmemtrace_preload.so")))
    }

    /// The same where the system refuses a new table.
    fn refused(&self, how: &str, what: &str) -> Output {
        let mut command = self.command(&compile(self.folder.path(), "refuse", REFUSE));
        self.end(command.arg(how).arg(built("libmemtrace_preload.so")).arg(&self.program).arg(what))
    }

    fn end(&self, command: &mut Command) -> Output {
        let file = self.folder.path().join("app.memtrace");
        let _ = std::fs::remove_file(&file);
        command.env("MEMTRACE_RUN", std::process::id().to_string()).env("MEMTRACE_OUT", &file);
        let output = command.output().unwrap();
        let capture = open(&file).unwrap();
        assert!(!capture.health.cut_off && capture.device(Device::Cpu).is_some(), "{output:?}");
        output
    }

    #[track_caller]
    fn is_as_alone(&self, what: &str) {
        assert_eq!(self.recorded(what), self.alone(what), "{what}");
    }
}

#[test]
fn a_file_that_a_program_puts_over_any_number_stays_as_it_is() {
    Programs::new().is_as_alone("over");
}

#[test]
fn a_program_gets_the_lowest_descriptor() {
    Programs::new().is_as_alone("lowest");
}

#[test]
fn a_program_has_no_descriptor_that_it_did_not_make() {
    Programs::new().is_as_alone("list");
}

#[test]
fn a_program_can_open_as_many_files_as_alone() {
    Programs::new().is_as_alone("many");
}

#[test]
fn before_close_range_there_was_another_way_to_a_table() {
    let programs = Programs::new();
    for what in ["list", "many"] {
        assert_eq!(programs.refused("1", what), programs.alone(what), "{what}");
    }
}

#[test]
fn where_no_table_is_to_be_had_the_recording_goes_on() {
    let programs = Programs::new();
    let output = programs.refused("2", "list");
    assert!(String::from_utf8(output.stdout).unwrap().ends_with(" is open\nat exit\n"));
    assert_eq!(programs.refused("2", "raw exit"), programs.alone("raw exit"));
}

#[test]
fn a_main_thread_that_ends_early_ends_as_alone() {
    let programs = Programs::new();
    for what in ["raw exit", "thread exit", "outlived", "outlived raw"] {
        programs.is_as_alone(what);
    }
}

#[test]
fn a_snapshot_after_the_main_threads_end_has_the_programs_name_and_functions() {
    let programs = Programs::new();
    let mut command = programs.command(&programs.program);
    command.arg("thread exit").env("LD_PRELOAD", built("libmemtrace_preload.so"));
    // Somebody who waits for the signal is there until the end.
    command.env("MEMTRACE_RUN", "all").env("MEMTRACE_OUT", "%e.json").env("MEMTRACE_SIGNAL", "USR2");
    let output = command.output().unwrap();
    let report = std::fs::read_to_string(programs.folder.path().join("app.json"));
    assert!(report.is_ok_and(|report| report.contains("(allocate)")), "{output:?}");
}

#[test]
fn a_program_without_threads_does_not_wait_for_ours() {
    let programs = Programs::new();
    let time = |what| {
        let began = Instant::now();
        programs.recorded(what);
        began.elapsed()
    };
    // On a busy machine either may be late.
    let is_soon = |_| time("thread exit") < time("nothing") + Duration::from_millis(300);
    assert!((0..10).any(is_soon));
}
