//! With no GPU of either kind.

use std::fs;

use crate::place::{Place, Said};

const IGNORED: &str = "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";

#[test]
fn a_test_that_cannot_start_counts_as_ignored() {
    let place = Place::new();
    let said = Said::by(place.runner().env("MEMTRACE_GPU", "real").arg(place.linked()));
    assert_eq!(said.code(), Some(0));
    assert!(said.out.lines().any(|line| line == IGNORED), "{said:?}");
    assert!(said.out.contains("running 1 test\ntest skipped_without_a_gpu ... ignored"), "{said:?}");
    let why = "linked-0123456789abcdef: no GPU (cuInit of the NVIDIA driver answers CUDA_ERROR_NO_DEVICE)";
    assert!(said.errors.starts_with("memtrace-runner: skipped") && said.errors.contains(why), "{said:?}");
}

#[test]
fn it_lists_one_test_which_is_ignored() {
    let place = Place::new();
    let program = place.linked();
    let list = |arguments: &[&str]| {
        let said = Said::by(place.runner().env("MEMTRACE_GPU", "real").arg(&program).args(arguments));
        assert_eq!(said.code(), Some(0), "{said:?}");
        said.out
    };
    // As nextest asks: all tests, then the ignored ones.
    assert_eq!(list(&["--list", "--format", "terse"]), "skipped_without_a_gpu: test\n");
    assert_eq!(list(&["--list", "--format", "terse", "--ignored"]), "skipped_without_a_gpu: test\n");
    assert_eq!(list(&["--list"]), "skipped_without_a_gpu: test\n\n1 test, 0 benchmarks\n");
}

#[test]
fn where_a_gpu_is_required_none_is_an_error() {
    let place = Place::new();
    for program in [place.linked(), place.plain()] {
        let mut runner = place.runner();
        let said = Said::by(runner.env("MEMTRACE_GPU", "real").env("MEMTRACE_REQUIRE_GPU", "1").arg(&program));
        said.assert_refused(&["MEMTRACE_REQUIRE_GPU=1", "CUDA_ERROR_NO_DEVICE", program.to_str().unwrap()]);
    }
}

#[test]
fn where_a_gpu_is_required_a_simulated_one_counts() {
    let place = Place::new();
    let said = Said::by(place.runner().env("MEMTRACE_REQUIRE_GPU", "1").arg(place.linked()));
    assert_eq!((said.code(), said.line("used")), (Some(0), "simulated"));
}

#[test]
fn what_starts_without_a_driver_runs_without_a_gpu() {
    let place = Place::new();
    let said = Said::by(place.runner().env("MEMTRACE_GPU", "real").arg(place.plain()));
    said.assert_runner_said("no GPU (cuInit of the NVIDIA driver answers CUDA_ERROR_NO_DEVICE)");
    assert_eq!(said.line("used"), "none");
}

#[test]
fn a_program_that_is_no_test_is_not_skipped_in_silence() {
    let place = Place::new();
    let run = |name| {
        let program = place.path.join(name);
        fs::rename(place.linked(), &program).unwrap();
        Said::by(place.runner().env("MEMTRACE_GPU", "real").arg(&program))
    };
    for name in ["train", "train-7", "train-0123456789abcdeg"] {
        run(name).assert_refused(&[&format!("a place/{name} cannot start without a GPU: cuInit")]);
    }
    // As rustdoc calls documentation's tests.
    assert_eq!(run("rust_out").code(), Some(0));
}

#[test]
fn a_program_for_libraries_that_are_not_simulated_is_skipped_on_the_simulated_gpu() {
    let place = Place::new();
    let program = place.linked_against("libcublas.so.12");
    let said = Said::by(place.runner().arg(&program));
    assert!(said.errors.contains("the simulated GPU has no libcublas.so.12"), "{said:?}");
    assert_eq!(said.code(), Some(0));
    fs::copy(place.path.join("libcublas.so.12"), place.path.join("simulated/libcublas.so.12")).unwrap();
    let said = Said::by(place.runner().arg(&program));
    assert_eq!((said.code(), said.line("used")), (Some(0), "simulated"));
}
