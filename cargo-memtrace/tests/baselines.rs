//! `baselines`: what tests left to review is shown, accepted and forgotten; what no test uses is removed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const OLD: &str = "
[forward] cpu
peak 100,000
           60,000  tests/model.rs:12 (forward)
           40,000  tests/model.rs:9 (load)

[gone] cpu
peak 7

[ignored] cpu
peak 8

[token] cuda:0
peak 9
";

const NEW: &str = "
[backward] cpu
peak 5,000
            5,000  tests/model.rs:30 (backward)

[forward] cpu
peak 120,000
           80,000  tests/model.rs:14 (forward)
           40,000  tests/model.rs:9 (load)
";

/// A test that uses one baseline, as memtrace notes it, and names another one.
const TEST: &str = r#"
#[test]
fn uses() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model.peaks.txt");
    std::fs::write(std::env::var("MEMTRACE_BASELINES_USED").unwrap(), format!("{file}\tcpu\tforward\n")).unwrap();
    assert!(std::env::var_os("FAIL").is_none());
    // As memtrace does if it cannot write all of it.
    if std::env::var_os("TORN").is_some() {
        std::fs::remove_file(std::env::var("MEMTRACE_BASELINES_USED").unwrap()).unwrap();
    }
}
// An ignored test has the baseline "ignored".
"#;

struct Package {
    folder: tempfile::TempDir,
}

impl Package {
    fn new() -> Self {
        let package = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(package.path("tests")).unwrap();
        fs::create_dir(package.path("src")).unwrap();
        fs::write(package.path("Cargo.toml"), "[package]\nname = \"p\"\nedition = \"2024\"\n[workspace]\n").unwrap();
        fs::write(package.path("src/lib.rs"), "").unwrap();
        fs::write(package.path("tests/model.rs"), TEST).unwrap();
        fs::write(package.path("tests/model.peaks.txt"), OLD).unwrap();
        let pending = package.pending();
        fs::create_dir_all(pending.parent().unwrap()).unwrap();
        fs::write(pending, NEW).unwrap();
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn pending(&self) -> PathBuf {
        let below = self.path("tests/model.peaks.txt");
        self.path("target/memtrace/baselines").join(below.strip_prefix("/").unwrap())
    }

    fn peaks(&self) -> String {
        fs::read_to_string(self.path("tests/model.peaks.txt")).unwrap()
    }

    /// Without a terminal.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.args(["memtrace", "baselines"]).args(arguments).current_dir(&self.folder);
        command.env_remove("CARGO_TARGET_DIR").envs(variables.iter().copied()).output().unwrap()
    }

    /// What a command with this exit code prints.
    #[track_caller]
    fn prints(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments, &[]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn changes_are_listed_by_line_and_accepted() {
    let package = Package::new();
    let listed = package.prints(1, &["review"]);
    for part in [
        "tests/model.peaks.txt: backward on cpu: new, 4.883 KiB\n",
        "tests/model.peaks.txt: forward on cpu: 97.66 KiB → 117.2 KiB, +19.53 KiB\n",
        "60,000 →          80,000  tests/model.rs:14 (forward)\n",
        "2 to review",
    ] {
        assert!(listed.contains(part), "{part}\n{listed}");
    }
    assert!(!listed.contains("(load)"), "only lines that changed: {listed}");
    assert_eq!(package.peaks(), OLD, "nothing is accepted unasked");
    package.prints(0, &["review", "--accept"]);
    let peaks = package.peaks();
    assert!(
        peaks.contains("[backward] cpu\npeak 5,000\n") && peaks.contains("[forward] cpu\npeak 120,000\n"),
        "{peaks}"
    );
    assert!(peaks.contains("[token] cuda:0\npeak 9\n"), "others stay: {peaks}");
    assert!(!package.pending().exists());
    assert_eq!(package.prints(0, &["review"]), "No baseline has changed.\n");
}

#[test]
fn update_accepts_those_of_a_path_only() {
    let package = Package::new();
    fs::create_dir(package.path("other")).unwrap();
    assert_eq!(package.prints(0, &["update", "other"]), "No baseline has changed.\n");
    assert_eq!(package.peaks(), OLD);
    assert!(package.prints(0, &["update", "tests"]).contains("forward on cpu: 97.66 KiB → 117.2 KiB"));
    assert!(package.peaks().contains("peak 120,000"));
}

#[test]
fn what_is_accepted_by_other_means_or_gone_is_forgotten() {
    let package = Package::new();
    fs::write(package.path("tests/model.peaks.txt"), NEW).unwrap();
    assert_eq!(package.prints(0, &["review"]), "No baseline has changed.\n");
    assert!(!package.pending().exists());
    let package = Package::new();
    fs::remove_dir_all(package.path("tests")).unwrap();
    assert_eq!(package.prints(0, &["review"]), "No baseline has changed.\n");
    assert!(!package.pending().exists());
}

#[test]
fn a_damaged_file_is_an_error_and_stays() {
    let package = Package::new();
    fs::write(package.path("tests/model.peaks.txt"), "[forward] cpu\npeak many\n").unwrap();
    for words in [&["review"][..], &["review", "--accept"], &["update"]] {
        let output = package.run(words, &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("tests/model.peaks.txt: line 2 is neither"), "{error}");
    }
    assert_eq!(package.peaks(), "[forward] cpu\npeak many\n");
}

#[test]
fn only_baselines_without_a_test_are_removed_after_a_run_that_passed() {
    let package = Package::new();
    let failed = package.run(&["prune", "--accept"], &[("FAIL", "1")]);
    assert_eq!(failed.status.code(), Some(2));
    assert_eq!(package.peaks(), OLD, "a run that failed tells nothing");
    let torn = package.run(&["prune", "--accept"], &[("TORN", "1")]);
    let said = String::from_utf8(torn.stderr).unwrap();
    assert!(torn.status.code() == Some(2) && said.contains("error: nothing is removed: cannot read "), "{said}");
    assert_eq!(package.peaks(), OLD, "a list that is not there tells nothing");
    let listed = package.prints(1, &["prune"]);
    assert!(listed.contains("tests/model.peaks.txt: gone on cpu has no test\n"), "{listed}");
    assert_eq!(package.peaks(), OLD);
    assert!(package.prints(0, &["prune", "--accept"]).ends_with("Removed 1.\n"));
    let peaks = package.peaks();
    for kept in ["[forward] cpu", "[ignored] cpu", "[token] cuda:0"] {
        assert!(peaks.contains(kept), "{kept}\n{peaks}");
    }
    assert!(!peaks.contains("gone"), "{peaks}");
}
