//! Which GPU the runner chooses, and its message.

use std::fs;

use crate::sandbox::{CommandOutput, NO_DEVICE, Sandbox};

const NO_REAL_ONE: &str = "cuInit of the NVIDIA driver returns CUDA_ERROR_NO_DEVICE";

#[test]
fn without_a_real_gpu_a_simulated_one_is_chosen() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().arg(sandbox.linked()));
    said.assert_runner_said(&format!("simulated GPU of 80 GiB ({NO_REAL_ONE})"));
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "1"));
}

#[test]
fn a_real_gpu_is_preferred() {
    let sandbox = Sandbox::new();
    sandbox.system_driver(0, 1);
    let said = CommandOutput::of(sandbox.runner().arg(sandbox.linked()));
    said.assert_runner_said("real GPU: Test GPU 9000, 24 GiB");
    let system = sandbox.path.join("system");
    assert_eq!((said.line("used"), said.line("path")), ("real", system.to_str().unwrap()));
    sandbox.system_driver(0, 3);
    let said = CommandOutput::of(sandbox.runner().arg(sandbox.linked()).env("MEMTRACE_GPU", "real"));
    said.assert_runner_said("3 real GPUs; the first: Test GPU 9000, 24 GiB");
    assert_eq!(said.line("devices"), "3");
}

#[test]
fn choosing_a_simulated_gpu_does_not_initialize_the_real_driver() {
    let sandbox = Sandbox::new();
    sandbox.system_driver(0, 1);
    let (program, started) = (sandbox.linked(), sandbox.path.join("started"));
    let run = |gpu| {
        let mut runner = sandbox.runner();
        runner.env("MEMTRACE_GPU", gpu).env("STARTED", &started);
        runner.env("MEMTRACE_CUSIM_MEMORY", "1.5GiB").env("MEMTRACE_CUSIM_DEVICES", "2");
        CommandOutput::of(runner.arg(&program))
    };
    let said = run("simulated");
    said.assert_runner_said("2 simulated GPUs of 1.5 GiB each (MEMTRACE_GPU=simulated)");
    assert_eq!((said.line("used"), said.line("devices")), ("simulated", "2"));
    assert!(!started.exists());
    assert_eq!(run("real").line("used"), "real");
    assert!(started.exists());
}

#[test]
fn a_broken_driver_is_no_gpu_and_the_message_says_why() {
    let sandbox = Sandbox::new();
    let why = |init, count| {
        sandbox.system_driver(init, count);
        CommandOutput::of(sandbox.runner().arg("--which")).out
    };
    assert!(why(NO_DEVICE, 1).contains(NO_REAL_ONE));
    assert!(why(34, 1).contains("cuInit of the NVIDIA driver returns 34"));
    assert!(why(0, 0).contains("the NVIDIA driver has no device"));
    assert!(why(-1, 1).contains("the NVIDIA driver crashes on a query: signal: 6"));
    fs::write(sandbox.path.join("system/libcuda.so.1"), "text").unwrap();
    let said = CommandOutput::of(sandbox.runner().arg("--which"));
    assert!(said.out.starts_with("simulated GPU of 80 GiB (the NVIDIA driver cannot be loaded: "), "{said:?}");
}

#[test]
fn the_simulated_driver_is_never_taken_for_a_real_one() {
    let sandbox = Sandbox::new();
    let simulated = sandbox.path.join("simulated");
    let run = |gpu| {
        let mut runner = sandbox.runner();
        runner.env("LD_LIBRARY_PATH", &simulated).env("MEMTRACE_GPU", gpu).env_remove("MEMTRACE_SIMULATED_GPU");
        CommandOutput::of(runner.arg(sandbox.linked()))
    };
    let said = run("auto");
    said.assert_runner_said("simulated GPU of 80 GiB (it is on LD_LIBRARY_PATH)");
    assert_eq!((said.line("used"), said.line("path")), ("simulated", simulated.to_str().unwrap()));
    run("simulated").assert_runner_said("simulated GPU of 80 GiB (MEMTRACE_GPU=simulated)");
    let said = run("real");
    assert!(said.errors.contains("skipped") && said.errors.contains("take its folder out of the variable"), "{said:?}");
}

#[test]
fn a_named_folder_overrides_the_library_path() {
    let sandbox = Sandbox::new();
    let other = sandbox.install_simulated("other");
    let said = CommandOutput::of(sandbox.runner().env("LD_LIBRARY_PATH", &other).arg(sandbox.linked()));
    said.assert_runner_said("simulated GPU of 80 GiB (MEMTRACE_SIMULATED_GPU is set)");
    let simulated = sandbox.path.join("simulated");
    assert_eq!(said.line("path"), format!("{}:{}", simulated.display(), other.display()));
}

#[test]
fn a_relative_folder_is_found_from_anywhere() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().env("MEMTRACE_SIMULATED_GPU", "simulated").arg(sandbox.linked()));
    assert!(said.line("path").starts_with(sandbox.path.join("simulated").to_str().unwrap()), "{said:?}");
}

#[test]
fn which_prints_the_choice() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(sandbox.runner().arg("--which"));
    let folder = sandbox.path.join("simulated");
    assert_eq!(said.out, format!("simulated GPU of 80 GiB ({NO_REAL_ONE})\nits driver: {}\n", folder.display()));
    let said = CommandOutput::of(sandbox.runner().arg("--which").env("MEMTRACE_GPU", "real"));
    assert_eq!((said.code(), said.out), (Some(0), format!("no GPU ({NO_REAL_ONE})\n")));
    let mut runner = sandbox.runner();
    let said = CommandOutput::of(runner.arg("--which").env("MEMTRACE_GPU", "real").env("MEMTRACE_REQUIRE_GPU", "1"));
    assert_eq!(said.code(), Some(1), "{said:?}");
}

#[test]
fn an_invalid_value_is_refused_with_the_valid_ones() {
    let sandbox = Sandbox::new();
    let program = sandbox.linked();
    let run = |name, value| CommandOutput::of(sandbox.runner().env(name, value).arg(&program));
    run("MEMTRACE_GPU", "cuda").assert_refused(&["MEMTRACE_GPU is \"cuda\"", "auto (the default), real or simulated"]);
    run("MEMTRACE_REQUIRE_GPU", "yes").assert_refused(&["MEMTRACE_REQUIRE_GPU is \"yes\"", "set it to 1"]);
    run("MEMTRACE_CUSIM_MEMORY", "much")
        .assert_refused(&["the simulated driver says: the value of MEMTRACE_CUSIM_MEMORY"]);
    run("MEMTRACE_SIMULATED_GPU", "nowhere").assert_refused(&["a folder/nowhere", "memtrace-runner --which"]);
    run("MEMTRACE_SIMULATED_GPU", "system").assert_refused(&["a folder/system", "is not memtrace's simulated one"]);
    let colon = sandbox.install_simulated("a:b");
    run("MEMTRACE_SIMULATED_GPU", colon.to_str().unwrap()).assert_refused(&["a:b", "rename it"]);
}

#[test]
fn wrong_usage_is_an_error_and_help_shows_examples() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(&mut sandbox.runner());
    assert_eq!((said.code(), said.errors.as_str()), (Some(2), "memtrace-runner: no program (try --help)\n"));
    let said = CommandOutput::of(sandbox.runner().arg("--wich"));
    assert_eq!((said.code(), said.errors.as_str()), (Some(2), "memtrace-runner: unknown option --wich (try --help)\n"));
    let said = CommandOutput::of(sandbox.runner().arg("--help"));
    for text in ["[target.x86_64-unknown-linux-gnu]", "MEMTRACE_REQUIRE_GPU=1", "MEMTRACE_GPU_USED"] {
        assert!(said.out.contains(text), "{text} in {said:?}");
    }
    let said = CommandOutput::of(sandbox.runner().arg("nowhere/test"));
    said.assert_refused(&["cannot start nowhere/test: No such file"]);
}
