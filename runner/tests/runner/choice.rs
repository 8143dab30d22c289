//! Which GPU is chosen, and what is said of it.

use std::fs;

use crate::place::{NO_DEVICE, Place, Said};

const NO_REAL_ONE: &str = "cuInit of the NVIDIA driver answers CUDA_ERROR_NO_DEVICE";

#[test]
fn without_a_real_gpu_it_is_a_simulated_one() {
    let place = Place::new();
    let said = Said::by(place.runner().arg(place.linked()));
    said.assert_runner_said(&format!("simulated GPU of 80 GiB ({NO_REAL_ONE})"));
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "1"));
}

#[test]
fn a_real_gpu_comes_first() {
    let place = Place::new();
    place.system_answers(0, 1);
    let said = Said::by(place.runner().arg(place.linked()));
    said.assert_runner_said("real GPU: Test GPU 9000, 24 GiB");
    let system = place.path.join("system");
    assert_eq!((said.line("used"), said.line("path")), ("real", system.to_str().unwrap()));
    place.system_answers(0, 3);
    let said = Said::by(place.runner().arg(place.linked()).env("MEMTRACE_GPU", "real"));
    said.assert_runner_said("3 real GPUs; the first: Test GPU 9000, 24 GiB");
    assert_eq!(said.line("devices"), "3");
}

#[test]
fn a_simulated_one_can_be_asked_for_and_a_real_one_is_left_alone() {
    let place = Place::new();
    place.system_answers(0, 1);
    let (program, started) = (place.linked(), place.path.join("started"));
    let run = |gpu| {
        let mut runner = place.runner();
        runner.env("MEMTRACE_GPU", gpu).env("STARTED", &started);
        runner.env("MEMTRACE_CUSIM_MEMORY", "1.5GiB").env("MEMTRACE_CUSIM_DEVICES", "2");
        Said::by(runner.arg(&program))
    };
    let said = run("simulated");
    said.assert_runner_said("2 simulated GPUs of 1.5 GiB each (MEMTRACE_GPU=simulated)");
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "2"));
    assert!(!started.exists());
    assert_eq!(run("real").line("used"), "real");
    assert!(started.exists());
}

#[test]
fn drivers_that_do_not_work_are_no_gpu_and_it_is_said_why() {
    let place = Place::new();
    let why = |init, count| {
        place.system_answers(init, count);
        Said::by(place.runner().arg("--which")).out
    };
    assert!(why(NO_DEVICE, 1).contains(NO_REAL_ONE));
    assert!(why(34, 1).contains("cuInit of the NVIDIA driver answers 34"));
    assert!(why(0, 0).contains("the NVIDIA driver has no device"));
    assert!(why(-1, 1).contains("the NVIDIA driver crashes when it is asked: signal: 6"));
    fs::write(place.path.join("system/libcuda.so.1"), "text").unwrap();
    let said = Said::by(place.runner().arg("--which"));
    assert!(said.out.starts_with("simulated GPU of 80 GiB (the NVIDIA driver cannot be loaded: "), "{said:?}");
}

#[test]
fn the_simulated_driver_is_never_taken_for_a_real_one() {
    let place = Place::new();
    let simulated = place.path.join("simulated");
    let run = |gpu| {
        let mut runner = place.runner();
        runner.env("LD_LIBRARY_PATH", &simulated).env("MEMTRACE_GPU", gpu).env_remove("MEMTRACE_SIMULATED_GPU");
        Said::by(runner.arg(place.linked()))
    };
    let said = run("auto");
    said.assert_runner_said("simulated GPU of 80 GiB (it is on LD_LIBRARY_PATH)");
    assert_eq!((said.line("used"), said.line("path")), ("simulated", simulated.to_str().unwrap()));
    run("simulated").assert_runner_said("simulated GPU of 80 GiB (MEMTRACE_GPU=simulated)");
    let said = run("real");
    assert!(said.errors.contains("skipped") && said.errors.contains("scripts/with-simulated-gpu"), "{said:?}");
}

#[test]
fn a_folder_that_is_named_comes_before_one_on_the_path() {
    let place = Place::new();
    let other = place.install_simulated("other");
    let said = Said::by(place.runner().env("LD_LIBRARY_PATH", &other).arg(place.linked()));
    said.assert_runner_said("simulated GPU of 80 GiB (MEMTRACE_SIMULATED_GPU is set)");
    let simulated = place.path.join("simulated");
    assert_eq!(said.line("path"), format!("{}:{}", simulated.display(), other.display()));
}

#[test]
fn a_relative_folder_is_found_from_anywhere() {
    let place = Place::new();
    let said = Said::by(place.runner().env("MEMTRACE_SIMULATED_GPU", "simulated").arg(place.linked()));
    assert!(said.line("path").starts_with(place.path.join("simulated").to_str().unwrap()), "{said:?}");
}

#[test]
fn which_says_what_would_be_chosen() {
    let place = Place::new();
    let said = Said::by(place.runner().arg("--which"));
    let folder = place.path.join("simulated");
    assert_eq!(said.out, format!("simulated GPU of 80 GiB ({NO_REAL_ONE})\nits driver: {}\n", folder.display()));
    let said = Said::by(place.runner().arg("--which").env("MEMTRACE_GPU", "real"));
    assert_eq!((said.code(), said.out), (Some(0), format!("no GPU ({NO_REAL_ONE})\n")));
    let mut runner = place.runner();
    let said = Said::by(runner.arg("--which").env("MEMTRACE_GPU", "real").env("MEMTRACE_REQUIRE_GPU", "1"));
    assert_eq!(said.code(), Some(1), "{said:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_what_is_taken() {
    let place = Place::new();
    let program = place.linked();
    let run = |name, value| Said::by(place.runner().env(name, value).arg(&program));
    run("MEMTRACE_GPU", "cuda").assert_refused(&["MEMTRACE_GPU is \"cuda\"", "auto (the default), real or simulated"]);
    run("MEMTRACE_REQUIRE_GPU", "yes").assert_refused(&["MEMTRACE_REQUIRE_GPU is \"yes\"", "it takes 1"]);
    run("MEMTRACE_CUSIM_MEMORY", "much").assert_refused(&["the simulated driver says: MEMTRACE_CUSIM_MEMORY"]);
    run("MEMTRACE_SIMULATED_GPU", "nowhere").assert_refused(&["a place/nowhere", "scripts/simulated-driver"]);
    run("MEMTRACE_SIMULATED_GPU", "system").assert_refused(&["a place/system", "is not memtrace's simulated one"]);
    let colon = place.install_simulated("a:b");
    run("MEMTRACE_SIMULATED_GPU", colon.to_str().unwrap()).assert_refused(&["a:b", "rename it"]);
}

#[test]
fn wrong_use_is_a_message_and_help_teaches() {
    let place = Place::new();
    let said = Said::by(&mut place.runner());
    assert_eq!((said.code(), said.errors.as_str()), (Some(2), "memtrace-runner: no program (try --help)\n"));
    let said = Said::by(place.runner().arg("--wich"));
    assert_eq!((said.code(), said.errors.as_str()), (Some(2), "memtrace-runner: what is --wich? (try --help)\n"));
    let said = Said::by(place.runner().arg("--help"));
    for text in ["[target.x86_64-unknown-linux-gnu]", "MEMTRACE_REQUIRE_GPU=1", "MEMTRACE_GPU_USED"] {
        assert!(said.out.contains(text), "{text} in {said:?}");
    }
    let said = Said::by(place.runner().arg("nowhere/test"));
    said.assert_refused(&["cannot start nowhere/test: No such file"]);
}
