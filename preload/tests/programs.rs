//! Programs in C under the preloaded library, on a simulated GPU.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

#[path = "support/bare.rs"]
mod bare;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bare::bare;
use memtrace::{Device, open};

/// Allocates 1000 bytes and as many more as its arguments say, says so, allocates 500 for each byte of its input, and
/// ends with the driver's last code for its arguments.
const PROGRAM: &str = "
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *driver;
static void *find(const char *name) { return dlsym(driver, name); }
int main(int count, char **arguments) {
    driver = dlopen(\"libcuda.so.1\", RTLD_NOW);
    unsigned long long context, address;
    ((int (*)(unsigned))find(\"cuInit\"))(0);
    ((int (*)(unsigned long long *, int))find(\"cuDevicePrimaryCtxRetain\"))(&context, 0);
    ((int (*)(unsigned long long))find(\"cuCtxSetCurrent\"))(context);
    int (*alloc)(unsigned long long *, size_t) = find(\"cuMemAlloc_v2\");
    int code = alloc(&address, 1000);
    for (int n = 1; n < count; n++) code = alloc(&address, atoll(arguments[n]));
    puts(\"ready\");
    fflush(stdout);
    while (getchar() != EOF) alloc(&address, 500);
    return ferror(stdin) ? 99 : code;
}
";

fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// A folder with the program and the driver in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("app.c"), folder.path().join("app"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    assert!(compile.arg("-w").arg("-o").arg(program).arg(source).arg("-ldl").status().unwrap().success());
    std::fs::copy(built("libmemtrace_cusim.so"), folder.path().join("libcuda.so.1")).unwrap();
    folder
}

fn command(folder: &Path, program: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = bare(program);
    command.current_dir(folder).env("LD_LIBRARY_PATH", folder).env("LD_PRELOAD", built("libmemtrace_preload.so"));
    command.envs(variables.iter().copied()).args(arguments);
    command
}

fn run(folder: &Path, program: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    command(folder, program, variables, arguments).output().unwrap()
}

/// The program with three blocks of 6000 bytes, when it has them all. It ends with its input.
fn waiting(folder: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = command(folder, &folder.join("app"), variables, &["2000", "3000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut app = command.spawn().unwrap();
    app.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    app
}

/// Waits until that is so.
fn eventually(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not in a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_that_was_not_changed_leaves_a_snapshot() {
    let folder = folder();
    let app = folder.path().join("app");
    let output = run(folder.path(), &app, &[("MEMTRACE_OUT", "a.memtrace")], &["2000", "3000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let capture = open(folder.path().join("a.memtrace")).unwrap();
    let gpu = capture.device(Device::Cuda(0)).unwrap();
    assert_eq!((gpu.peak.bytes, gpu.live.len(), gpu.overwritten), (6000, 3, 0));
    let output = run(folder.path(), &app, &[("MEMTRACE_OUT", "b-%p.pickle")], &[]);
    assert!(text(&output.stderr).contains(".pickle at the end; 1000 B at the peak"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "ready\n");
}

#[test]
fn a_refused_allocation_leaves_a_post_mortem_and_the_programs_own_error() {
    let folder = folder();
    let variables =
        [("MEMTRACE_OUT", "c.memtrace"), ("MEMTRACE_DUMP_ON_OOM", "1"), ("MEMTRACE_CUSIM_MEMORY", "100MiB")];
    let output = run(folder.path(), &folder.path().join("app"), &variables, &["200000000"]);
    assert_eq!(output.status.code(), Some(2), "the driver's code for out of memory");
    let said = text(&output.stderr);
    assert!(said.contains("cuda:0 is out of memory") && said.contains("(200,000,000 bytes)"), "{said}");
    let capture = open(folder.path().join("c.memtrace")).unwrap();
    assert_eq!(capture.device(Device::Cuda(0)).unwrap().stats.num_ooms, 1);
}

/// A program that has no CUDA must start with it.
#[test]
fn the_library_needs_none_that_a_program_may_lack() {
    let output = Command::new("readelf").arg("-dW").arg(built("libmemtrace_preload.so")).output().unwrap();
    let needed: Vec<String> = text(&output.stdout)
        .lines()
        .filter_map(|line| Some(line.split_once("(NEEDED)")?.1.split_once('[')?.1.trim_end_matches(']').to_owned()))
        .collect();
    let parts_of_the_system = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
    assert!(needed.iter().any(|library| library == "libc.so.6"), "{needed:?}");
    assert!(needed.iter().all(|library| parts_of_the_system.contains(&library.as_str())), "{needed:?}");
}

#[test]
fn a_process_without_cuda_is_left_alone() {
    let folder = folder();
    let output =
        run(folder.path(), Path::new("/bin/sh"), &[("MEMTRACE_OUT", "%p.pickle")], &["-c", "echo hello | cat"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("hello\n".to_owned(), String::new()));
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(files.into_iter().all(|name| !name.ends_with("pickle")));
}

#[test]
fn memtrace_0_records_nothing() {
    let folder = folder();
    let variables = [("MEMTRACE", "0"), ("MEMTRACE_OUT", "d.pickle")];
    let output = run(folder.path(), &folder.path().join("app"), &variables, &[]);
    assert!(output.status.success() && text(&output.stderr).is_empty(), "{}", text(&output.stderr));
    assert!(!folder.path().join("d.pickle").exists());
}

#[test]
fn a_signal_leaves_a_snapshot_and_the_program_goes_on() {
    let folder = folder();
    let file = folder.path().join("e.json");
    let app = waiting(folder.path(), &[("MEMTRACE_OUT", "e.json"), ("MEMTRACE_SIGNAL", "USR2")]);
    assert!(Command::new("kill").args(["-USR2", &app.id().to_string()]).status().unwrap().success());
    eventually(|| std::fs::read_to_string(&file).is_ok_and(|report| report.ends_with("\n}\n")));
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"bytes\": 6000,"));
    let output = app.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    let second = format!("wrote {} at the end", file.with_file_name("e-2.json").display());
    assert!(text(&output.stderr).contains(&second), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_is_killed_leaves_what_it_had() {
    let folder = folder();
    let file = folder.path().join("f.memtrace");
    let live = || open(&file).ok()?.device(Device::Cuda(0)).map(|gpu| gpu.live.len());
    let mut app = waiting(folder.path(), &[("MEMTRACE_OUT", "f.memtrace")]);
    eventually(|| live() == Some(3));
    app.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    eventually(|| live() == Some(4));
    app.kill().unwrap();
    assert!(!app.wait().unwrap().success());
    assert_eq!(live(), Some(4));
}

#[test]
fn a_variable_that_makes_no_sense_does_not_stop_the_program() {
    let folder = folder();
    let output = run(folder.path(), &folder.path().join("app"), &[("MEMTRACE_OUT", "g.exe")], &[]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "ready\n");
    assert!(text(&output.stderr).starts_with("memtrace: nothing is recorded: "), "{}", text(&output.stderr));
}
