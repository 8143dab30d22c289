//! Baselines in files beside the tests, and the list of all peaks: in processes of their own, whose package is a
//! temporary folder.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace::{PeakLimit, assert_peak, scope};
use support::Raw;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// A package that has a file of this one's name, so that its baselines stand beside it.
struct Package(tempfile::TempDir);

impl Package {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        fs::write(folder.path().join("tests/baselines.rs"), "").unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn baselines(&self) -> String {
        fs::read_to_string(self.path("tests/baselines.peaks.txt")).unwrap_or_default()
    }

    /// Runs tests of this program that are ignored otherwise.
    fn run(&self, tests: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact"]).args(tests).current_dir(self.0.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MEMTRACE") || name == "CI") {
            command.env_remove(name);
        }
        command.env("CARGO_MANIFEST_DIR", self.0.path()).env("RUST_BACKTRACE", "0");
        command.envs(variables.iter().copied()).output().unwrap()
    }

    fn passes(&self, tests: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.run(tests, variables);
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        text(&output.stderr)
    }

    fn fails(&self, tests: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.run(tests, variables);
        assert!(!output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// So many bytes more than usual.
fn more() -> usize {
    std::env::var("MEMTRACE_TEST_MORE").map_or(0, |more| more.parse().unwrap())
}

fn forward() -> (Vec<u8>, Vec<u8>) {
    let weights = std::hint::black_box(vec![0u8; 40_000]);
    (weights, scope("activations", || std::hint::black_box(vec![0u8; 60_000 + more()])))
}

#[test]
#[ignore = "run in a process of its own"]
fn child_forward() {
    drop(assert_peak!(baseline = "forward", forward()));
}

#[test]
#[ignore = "run in a process of its own"]
fn child_tolerant() {
    drop(assert_peak!(baseline = "forward", tolerance = "10%", limit = "1 MiB", forward()));
}

#[test]
#[ignore = "run in a process of its own"]
fn child_other() {
    drop(assert_peak!("1 MiB", name = "a | b", Raw::new(1000 + more())));
}

#[test]
#[ignore = "run in a process of its own"]
fn child_many() {
    let put = |n: usize| {
        let limit = PeakLimit::new().baseline(format!("block {n:02}"));
        drop(limit.run(|| Raw::new(1000 + n)).unwrap());
    };
    std::thread::scope(|threads| (0..16).for_each(|n| drop(threads.spawn(move || put(n)))));
}

const FORWARD: [&str; 1] = ["child_forward"];
const UPDATE: (&str, &str) = ("MEMTRACE_UPDATE_BASELINES", "1");
const CI: (&str, &str) = ("CI", "true");

#[test]
fn a_missing_baseline_fails_in_ci_and_is_written_elsewhere() {
    let package = Package::new();
    let failed = package.fails(&FORWARD, &[CI]);
    says(
        &failed,
        &["there is no baseline `forward` for cpu in", "tests/baselines.peaks.txt", "MEMTRACE_UPDATE_BASELINES=1"],
    );
    assert_eq!(package.baselines(), "");
    says(&package.passes(&FORWARD, &[]), &["baseline `forward` in", "new, 97.66 KiB"]);
    let written = package.baselines();
    says(&written, &["# Peaks that the tests", "\n[forward] cpu\npeak 100,000\n", "  60,000  ", "tests/baselines.rs:"]);
    package.passes(&FORWARD, &[CI]);
    assert_eq!(package.baselines(), written, "nothing is written that need not be");
}

#[test]
fn an_increase_past_the_tolerance_fails_with_the_difference_by_line() {
    let package = Package::new();
    package.passes(&FORWARD, &[UPDATE, CI]);
    let written = package.baselines();
    package.passes(&FORWARD, &[CI, ("MEMTRACE_TEST_MORE", "1000")]);
    let failed = package.fails(&FORWARD, &[CI, ("MEMTRACE_TEST_MORE", "1001")]);
    says(&failed, &["is over its baseline `forward` of 97.66 KiB by 1001 B: 1.0 %, where 1 % are allowed"]);
    says(&failed, &["Against the baseline, by line", "+1001 B  59.57 KiB  58.59 KiB  "]);
    says(&failed, &["At the peak, by scope", "activations", "Snapshot: target/memtrace/child_forward.pickle"]);
    assert!(package.path("target/memtrace/child_forward.pickle").exists());
    package.passes(&["child_tolerant"], &[CI, ("MEMTRACE_TEST_MORE", "10000")]);
    package.passes(&FORWARD, &[("CI", "false")]);
    let both = package.fails(&["child_tolerant"], &[CI, ("MEMTRACE_TEST_MORE", "1000000")]);
    says(&both, &["is over the limit of 1.000 MiB"]);
    assert_eq!(package.baselines(), written);
    says(&package.passes(&FORWARD, &[UPDATE, ("MEMTRACE_TEST_MORE", "5000")]), &["97.66 KiB → 102.5 KiB"]);
    says(&package.baselines(), &["[forward] cpu\npeak 105,000\n"]);
    says(&package.passes(&FORWARD, &[CI]), &["forward: the peak is below its baseline by 4.883 KiB"]);
}

#[test]
fn tests_that_write_side_by_side_lose_nothing() {
    let package = Package::new();
    let children = ["child_many", "child_forward"].map(|test| (test, &package));
    std::thread::scope(|threads| {
        for (test, package) in children {
            threads.spawn(move || package.passes(&[test], &[UPDATE]));
        }
    });
    let written = package.baselines();
    assert_eq!(written.matches("\n[").count(), 17, "{written}");
    says(&written, &["[block 00] cpu\npeak 1,000\n", "[block 15] cpu\npeak 1,015\n", "[forward] cpu"]);
    package.passes(&["child_many"], &[CI]);
}

#[test]
fn baselines_that_cannot_be_read_or_written_are_a_clear_error() {
    let package = Package::new();
    fs::write(package.path("tests/baselines.peaks.txt"), "[forward] cpu\npeak many\n").unwrap();
    says(&package.fails(&FORWARD, &[]), &["cannot read the baselines of", "line 2 is neither", "make it anew"]);
    assert_eq!(package.baselines(), "[forward] cpu\npeak many\n", "it is left as it is");
    let elsewhere = Package::new();
    fs::remove_file(elsewhere.path("tests/baselines.rs")).unwrap();
    let failed = elsewhere.fails(&FORWARD, &[]);
    says(&failed, &["cannot find tests/baselines.rs from", "run the tests with cargo"]);
}

fn rows(path: &Path) -> Vec<serde_json::Value> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn all_peaks_of_a_run_are_listed_for_machines_and_in_a_summary() {
    let package = Package::new();
    let (json, summary) = (package.path("peaks.json"), package.path("summary.md"));
    fs::write(&summary, "# Build\nfine\n").unwrap();
    let files = [("MEMTRACE_PEAKS", json.to_str().unwrap()), ("MEMTRACE_SUMMARY", summary.to_str().unwrap())];
    package.passes(&["child_other", "child_forward"], &files);
    package.fails(&["child_forward"], &[files[0], files[1], ("MEMTRACE_TEST_MORE", "20000")]);
    let rows = rows(&json);
    assert_eq!(rows.len(), 2, "a row that is there already is replaced: {rows:?}");
    let of = |test: &str| rows.iter().find(|row| row["test"] == test).unwrap();
    let (other, forward) = (of("child_other"), of("child_forward"));
    assert_eq!((&other["peak"], &other["limit"], &other["passed"]), (&1000.into(), &(1 << 20).into(), &true.into()));
    assert_eq!((&forward["peak"], &forward["baseline"]), (&120_000.into(), &100_000.into()));
    assert_eq!((&forward["passed"], &forward["program"]), (&false.into(), &"baselines".into()));
    let text = fs::read_to_string(&summary).unwrap();
    says(
        &text,
        &[
            "# Build\nfine\n",
            "### Memory",
            "| ✓ | 1000 B (1,000) | 1.000 MiB | - | cpu | `baselines::child_other` | `a   b` |",
        ],
    );
    says(&text, &["| ✗ | 117.2 KiB (120,000) | - | 97.66 KiB | cpu | `baselines::child_forward` | `forward` |"]);
    assert_eq!(text.matches("child_forward").count(), 1, "{text}");
    fs::write(&summary, text + "more\n").unwrap();
    package.passes(&["child_other"], &[files[1], ("MEMTRACE_TEST_MORE", "24")]);
    let text = fs::read_to_string(&summary).unwrap();
    says(&text, &["more\n", "| ✓ | 1.000 KiB (1,024) |"]);
    assert_eq!(text.matches('✓').count(), 1, "{text}");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_loop() {
    for size in [100, 200] {
        PeakLimit::new().limit(1000).run(|| drop(Raw::new(size))).unwrap();
    }
}

#[test]
fn packages_share_the_lists_and_lose_nothing() {
    let packages: Vec<Package> = (0..4).map(|_| Package::new()).collect();
    let lists = Package::new();
    let (json, summary) = (lists.path("peaks.json"), lists.path("summary.md"));
    fs::write(&json, "").unwrap();
    let files = [("MEMTRACE_PEAKS", json.to_str().unwrap()), ("MEMTRACE_SUMMARY", summary.to_str().unwrap())];
    std::thread::scope(|threads| {
        for (number, package) in packages.iter().enumerate() {
            let name = format!("package {number}");
            let of_package = ("CARGO_PKG_NAME", name);
            threads.spawn(move || {
                let variables = [files[0], files[1], (of_package.0, &*of_package.1)];
                (0..5).for_each(|_| drop(package.passes(&["child_loop", "child_other"], &variables)));
            });
        }
    });
    let rows = rows(&json);
    assert_eq!(rows.len(), 4 * 3, "{rows:?}");
    let names: Vec<&str> =
        rows.iter().filter(|row| row["package"] == "package 2").map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("tests/baselines.rs:")), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(" #2")), "{names:?}");
}

#[test]
fn a_list_that_cannot_be_written_does_not_fail_the_test() {
    let package = Package::new();
    let said = package.passes(&["child_other"], &[("MEMTRACE_PEAKS", "/dev/null/peaks.json")]);
    says(&said, &["MEMTRACE_PEAKS: cannot"]);
    fs::write(package.path("peaks.json"), "not json").unwrap();
    let path = package.path("peaks.json");
    package.passes(&["child_other"], &[("MEMTRACE_PEAKS", path.to_str().unwrap())]);
    assert_eq!(fs::read_to_string(path).unwrap(), "not json", "somebody else's file is left as it is");
}
