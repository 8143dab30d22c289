//! Stands in for a test program that cannot start: prints libtest's output for one ignored test.

use std::env;
use std::ffi::OsString;
use std::path::Path;

/// The test's name, also in lists, so that nextest counts it as skipped.
const NAME: &str = "skipped_without_a_gpu";

/// Whether this is a test, and not a program of `cargo run`. Cargo appends a hash to the names of tests. rustdoc gives
/// all its tests the same name.
pub(crate) fn is_test(program: &Path) -> bool {
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let hash = name.rsplit_once('-').map_or("", |(_, hash)| hash);
    let hashed = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    hashed || name == "rust_out" || env::var_os("NEXTEST").is_some()
}

pub(crate) fn text(arguments: &[OsString]) -> String {
    let has = |text: &str| arguments.iter().any(|argument| argument == text);
    let terse = has("terse") || has("--format=terse") || has("-q") || has("--quiet");
    if !has("--list") {
        format!(
            "\nrunning 1 test\ntest {NAME} ... ignored, this program needs a GPU to start\n\n\
             test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n"
        )
    } else if terse {
        format!("{NAME}: test\n")
    } else {
        format!("{NAME}: test\n\n1 test, 0 benchmarks\n")
    }
}
