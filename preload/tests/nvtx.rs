//! Ranges of NVTX in programs in C under the preloaded library: scopes, and the levels that NVTX promises.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

#[path = "support/bare.rs"]
mod bare;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bare::bare;
use memtrace::{Device, Snapshot, SnapshotData, open};

/// Does what NVTX's headers do: loads the variable's library, and calls what that puts into the tables. One case a run.
const PROGRAM: &str = include_str!("nvtx.c");

fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// A folder with the program, and its path.
fn folder() -> (tempfile::TempDir, PathBuf) {
    folder_with(&[])
}

fn folder_with(options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("nvtx.c"), folder.path().join("nvtx"));
    std::fs::write(&file, PROGRAM).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile
        .args(["-Wall", "-Werror", "-g", "-fno-builtin", "-pthread", "-o"])
        .arg(&program)
        .arg(file)
        .arg("-ldl")
        .args(options);
    assert!(compile.status().unwrap().success());
    (folder, program)
}

/// Runs a case as `cargo memtrace run` does.
fn run(folder: &Path, program: &Path, case: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = bare(program);
    let library = built("libmemtrace_preload.so");
    command.current_dir(folder).arg(case).env("LD_PRELOAD", &library).env("NVTX_INJECTION64_PATH", &library);
    command.env("MEMTRACE_RUN", std::process::id().to_string()).env("MEMTRACE_OUT", "nvtx.memtrace");
    command.envs(variables.iter().copied()).output().unwrap()
}

/// The recording of a case. The program itself checks the levels, and says which one is wrong.
fn recorded(case: &str) -> Snapshot {
    let (folder, program) = folder();
    let output = run(folder.path(), &program, case, &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    open(folder.path().join("nvtx.memtrace")).unwrap()
}

/// The scopes of the blocks that are live at the end, by their size in KiB, which numbers them from 101 on.
fn scopes(data: &SnapshotData) -> Vec<String> {
    let mut blocks: Vec<_> = data.device(Device::Cpu).unwrap().live.iter().collect();
    blocks.retain(|block| block.size.is_multiple_of(1024) && block.size > 100 << 10);
    blocks.sort_by_key(|block| block.size);
    assert!(blocks.iter().enumerate().all(|(n, block)| block.size == (101 + n as u64) << 10), "{blocks:?}");
    blocks.iter().map(|block| data.context_path(block.context)).collect()
}

#[test]
fn ranges_are_scopes_by_every_function_and_kind_of_message() {
    let data = recorded("kinds");
    let expected = [
        "ascii",
        "ascii > größe 大 😀",
        "ascii > ex",
        "ascii > ex wide",
        "ascii > kept",
        "ascii > kept wide",
        "ascii",
        "",
    ];
    assert_eq!(scopes(&data), expected);
}

#[test]
fn domains_have_stacks_of_their_own() {
    let expected = ["app", "app > solver", "app > solver > inner", "solver > inner", "inner", "inner > default", ""];
    assert_eq!(scopes(&recorded("domains")), expected);
}

#[test]
fn messages_that_are_missing_broken_or_endless_do_no_harm() {
    let long = "ä".repeat(128) + "…";
    let expected = ["", "", "", "", "", "", "", "", "a\u{fffd}b\u{fffd}", "a\u{fffd}\u{fffd}b", &long, &long, &long];
    assert_eq!(scopes(&recorded("messages")), expected);
}

#[test]
fn ranges_nested_deeper_than_the_bound_are_counted_and_end_in_order() {
    let data = recorded("deep");
    let scopes = scopes(&data);
    assert_eq!(scopes.iter().map(|path| path.split(" > ").count()).collect::<Vec<_>>(), [64, 64, 1]);
    assert_eq!(scopes[2], "level");
}

#[test]
fn ranges_that_a_thread_leaves_open_end_with_it() {
    let data = recorded("threads");
    assert_eq!(scopes(&data), ["left open", "left open > second", ""]);
    let cpu = data.device(Device::Cpu).unwrap();
    let calls = |name: &str| {
        let of_name = cpu.scopes.iter().filter(|scope| data.context_names(scope.context).last() == Some(&name));
        of_name.map(|scope| scope.calls).sum::<u64>()
    };
    assert_eq!((calls("left open"), calls("worker")), (501, 8 * 2000));
    assert_eq!(cpu.marks.iter().filter(|mark| mark.enter).count() * 2, cpu.marks.len());
}

#[test]
fn many_names_on_several_threads_are_kept_and_take_none_of_the_programs_memory() {
    let data = recorded("names");
    assert_eq!(scopes(&data), ["2999 of thread 3"]);
    let cpu = data.device(Device::Cpu).unwrap();
    assert_eq!(cpu.scopes.iter().filter(|scope| scope.calls > 0).count(), 4 * 3000 * 2);
    let large = cpu.live.iter().filter(|block| block.size > 4096).map(|block| block.size);
    assert_eq!(large.collect::<Vec<_>>(), [101 << 10]);
}

#[test]
fn a_forked_child_counts_its_ranges_and_the_parent_is_as_before() {
    assert_eq!(scopes(&recorded("forks")), ["parent"]);
}

#[test]
fn process_ranges_and_marks_are_left_alone() {
    assert_eq!(scopes(&recorded("others")), ["", "range", ""]);
}

#[test]
fn tables_that_are_missing_small_or_unknown_are_left_alone() {
    assert_eq!(scopes(&recorded("tables")), [""]);
}

#[test]
fn a_program_with_memtrace_in_it_runs_as_without_a_tool() {
    let (folder, program) = folder_with(&["-DHAS_MEMTRACE"]);
    let output = run(folder.path(), &program, "elsewhere", &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("the program has memtrace in it"), "{said}");
    assert!(!folder.path().join("nvtx.memtrace").exists());
}

#[test]
fn a_program_that_another_tool_is_attached_to_is_recorded_without_its_ranges() {
    let (folder, program) = folder();
    // No library: the program goes on without a tool.
    let output = run(folder.path(), &program, "elsewhere", &[("NVTX_INJECTION64_PATH", Path::new("/dev/null"))]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(scopes(&open(folder.path().join("nvtx.memtrace")).unwrap()), [""]);
}
