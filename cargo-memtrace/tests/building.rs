//! `run` with packages of a user, which cargo builds. They have nothing of memtrace in them and are not recorded, so no library is
//! built for them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const PROGRAM: &str = "fn main() { println!(\"said {:?}\", std::env::args().skip(1).collect::<Vec<_>>()); }";

/// A package with two programs and a benchmark.
fn package(program: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(
        "Cargo.toml",
        "[package]\nname = \"two\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nstrip = true\n\
         [[bench]]\nname = \"speed\"\nharness = false\n",
    );
    put("src/bin/zeta.rs", program);
    put("src/bin/alpha.rs", program);
    put("benches/speed.rs", program);
    folder
}

fn memtrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder).env("MEMTRACE", "off").env("NO_COLOR", "1");
    command.env_remove("CARGO_TARGET_DIR").output().unwrap()
}

fn outputs(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn several_programs_are_named_in_order_before_anything_is_built() {
    let package = package("compile_error!(\"built\");");
    let output = memtrace(package.path(), &["run", "--offline"]);
    let (_, errors) = outputs(&output);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("error: there are several programs, name one with --bin: alpha, zeta"), "{errors}");
    assert!(!errors.contains("built"), "{errors}");
    let named = outputs(&memtrace(package.path(), &["run", "--offline", "--bin", "zeta"])).1;
    assert!(named.contains("built"), "{named}");
}

#[test]
fn programs_keep_their_names_and_benchmarks_run_as_cargo_runs_them() {
    let package = package(PROGRAM);
    let output = memtrace(package.path(), &["run", "--offline", "--release", "--bin", "zeta", "--", "a"]);
    let (out, errors) = outputs(&output);
    assert!(out == "said [\"a\"]\n" && errors.contains("MEMTRACE=off"), "{out} {errors}");
    assert!(!errors.contains("recorded to") && !package.path().join("target/memtrace").exists(), "{errors}");
    let (lines, _) = outputs(&memtrace(package.path(), &["doctor", "target/release/zeta"]));
    assert!(lines.contains("lines: yes"), "{lines}");
    let (out, errors) = outputs(&memtrace(package.path(), &["run", "--offline", "--bench", "speed", "--", "a"]));
    assert_eq!(out, "said [\"--bench\", \"a\"]\n", "{errors}");
}

#[test]
fn a_runner_of_cargos_configuration_is_not_left_out_without_a_word() {
    let package = package(PROGRAM);
    let run = || outputs(&memtrace(package.path(), &["run", "--offline", "--bin", "zeta"])).1;
    assert!(!run().contains("runner"), "{}", run());
    fs::create_dir(package.path().join(".cargo")).unwrap();
    fs::write(package.path().join(".cargo/config.toml"), "[target.'cfg(all())']\nrunner = \"nice\"\n").unwrap();
    let errors = run();
    assert!(errors.contains("the runner in ") && errors.contains(".cargo/config.toml is not used"), "{errors}");
}
