//! Programs without a real or simulated GPU.

use std::fs;

use crate::sandbox::{CommandOutput, Sandbox};

const IGNORED: &str = "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";

#[test]
fn a_test_that_cannot_start_counts_as_ignored() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().env("MEMTRACE_GPU", "real").arg(sandbox.linked()));
    assert_eq!(said.code(), Some(0));
    assert!(said.out.lines().any(|line| line == IGNORED), "{said:?}");
    assert!(said.out.contains("running 1 test\ntest skipped_without_a_gpu ... ignored"), "{said:?}");
    let why = "linked-0123456789abcdef: no GPU (cuInit of the NVIDIA driver returns CUDA_ERROR_NO_DEVICE)";
    assert!(said.errors.starts_with("memtrace-runner: skipped") && said.errors.contains(why), "{said:?}");
}

#[test]
fn a_skipped_program_lists_one_ignored_test() {
    let sandbox = Sandbox::new();
    let program = sandbox.linked();
    let list = |arguments: &[&str]| {
        let said = CommandOutput::of(sandbox.runner().env("MEMTRACE_GPU", "real").arg(&program).args(arguments));
        assert_eq!(said.code(), Some(0), "{said:?}");
        said.out
    };
    // nextest lists all tests, then the ignored ones.
    assert_eq!(list(&["--list", "--format", "terse"]), "skipped_without_a_gpu: test\n");
    assert_eq!(list(&["--list", "--format", "terse", "--ignored"]), "skipped_without_a_gpu: test\n");
    assert_eq!(list(&["--list"]), "skipped_without_a_gpu: test\n\n1 test, 0 benchmarks\n");
}

#[test]
fn a_required_gpu_that_is_missing_is_an_error() {
    let sandbox = Sandbox::new();
    for program in [sandbox.linked(), sandbox.plain()] {
        let mut runner = sandbox.runner();
        let said = CommandOutput::of(runner.env("MEMTRACE_GPU", "real").env("MEMTRACE_REQUIRE_GPU", "1").arg(&program));
        said.assert_refused(&["MEMTRACE_REQUIRE_GPU=1", "CUDA_ERROR_NO_DEVICE", program.to_str().unwrap()]);
    }
}

#[test]
fn a_simulated_gpu_satisfies_the_requirement() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().env("MEMTRACE_REQUIRE_GPU", "1").arg(sandbox.linked()));
    assert_eq!((said.code(), said.line("used")), (Some(0), "simulated"));
}

#[test]
fn a_program_that_needs_no_driver_runs_without_a_gpu() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().env("MEMTRACE_GPU", "real").arg(sandbox.plain()));
    said.assert_runner_said("no GPU (cuInit of the NVIDIA driver returns CUDA_ERROR_NO_DEVICE)");
    assert_eq!(said.line("used"), "none");
}

#[test]
fn a_program_that_is_no_test_fails_without_a_gpu() {
    let sandbox = Sandbox::new();
    let run = |name| {
        let program = sandbox.path.join(name);
        fs::rename(sandbox.linked(), &program).unwrap();
        CommandOutput::of(sandbox.runner().env("MEMTRACE_GPU", "real").arg(&program))
    };
    for name in ["train", "train-7", "train-0123456789abcdeg"] {
        run(name).assert_refused(&[&format!("a folder/{name} cannot start without a GPU: cuInit")]);
    }
    // The name of rustdoc's tests.
    assert_eq!(run("rust_out").code(), Some(0));
}

#[test]
fn a_program_that_needs_a_library_without_a_simulation_is_skipped() {
    let sandbox = Sandbox::new();
    let program = sandbox.linked_against("libcublas.so.12");
    let said = CommandOutput::of(sandbox.runner().arg(&program));
    assert!(said.errors.contains("the simulated GPU has no libcublas.so.12"), "{said:?}");
    assert_eq!(said.code(), Some(0));
    fs::copy(sandbox.path.join("libcublas.so.12"), sandbox.path.join("simulated/libcublas.so.12")).unwrap();
    let said = CommandOutput::of(sandbox.runner().arg(&program));
    assert_eq!((said.code(), said.line("used")), (Some(0), "simulated"));
}
