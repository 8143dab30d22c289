//! Cargo runs a package's tests through the runner.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{CommandOutput, Sandbox};

const MANIFEST: &str = "[package]\nname = \"gpu-tests\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";

const TESTS: &str = r#"
#[link(name = "cuda")]
unsafe extern "C" {
    fn cuInit(flags: u32) -> i32;
}

#[test]
fn there_is_a_gpu() {
    assert_eq!(unsafe { cuInit(0) }, 0);
}

#[test]
#[should_panic(expected = "as it should")]
fn panics() {
    panic!("as it should");
}

#[test]
fn the_choice_is_in_the_environment() {
    assert_eq!(std::env::var("MEMTRACE_GPU_USED").as_deref(), Ok("simulated"));
}
"#;

#[test]
fn cargo_test_runs_on_the_simulated_gpu() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(cargo_test(&sandbox).env("MEMTRACE_REQUIRE_GPU", "1"));
    assert_eq!(said.code(), Some(0), "{said:?}");
    assert!(said.out.contains("test result: ok. 3 passed; 0 failed; 0 ignored;"), "{said:?}");
    assert!(said.errors.contains("memtrace-runner: simulated GPU of 80 GiB ("), "{said:?}");
}

#[test]
fn cargo_test_counts_skipped_tests_and_runs_the_others() {
    let sandbox = Sandbox::new();
    let said = CommandOutput::of(cargo_test(&sandbox).env("MEMTRACE_GPU", "real"));
    assert_eq!(said.code(), Some(0), "{said:?}");
    assert!(said.out.contains("test result: ok. 0 passed; 0 failed; 1 ignored;"), "{said:?}");
    // The test of the library, which is not linked against the driver.
    assert!(said.out.contains("test result: ok. 1 passed; 0 failed; 0 ignored;"), "{said:?}");
    let said = CommandOutput::of(cargo_test(&sandbox).env("MEMTRACE_GPU", "real").env("MEMTRACE_REQUIRE_GPU", "1"));
    assert_eq!(said.code(), Some(101), "{said:?}");
}

/// `cargo test` in a new package whose test is linked against the driver.
fn cargo_test(sandbox: &Sandbox) -> Command {
    let package = sandbox.path.join("package");
    for (file, text) in [
        ("Cargo.toml", MANIFEST),
        ("src/lib.rs", "#[test]\nfn needs_no_gpu() {}\n"),
        ("tests/gpu.rs", TESTS),
        (
            ".cargo/config.toml",
            &format!(
                "[target.'cfg(target_os = \"linux\")']\nrunner = [{:?}]\n[build]\nrustflags = [\"-L\", {:?}]\n",
                env!("CARGO_BIN_EXE_memtrace-runner"),
                sandbox.path.join("simulated"),
            ),
        ),
    ] {
        write(&package.join(file), text);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = sandbox.bare_runner(Path::new(&cargo));
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(name);
    }
    command.args(["test", "--offline", "--no-fail-fast"]).current_dir(&package);
    command.env("CARGO_TARGET_DIR", package.join("target"));
    command.env("MEMTRACE_SIMULATED_GPU", sandbox.path.join("simulated"));
    command
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}
