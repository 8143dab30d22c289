//! Baseline files beside tests, and the list of all peaks. A child process runs the tests in a package that is a
//! temporary folder.

#[path = "support/child.rs"]
mod child;
#[path = "support/full_disk.rs"]
mod full_disk;
#[path = "baselines/on_full_disk.rs"]
mod on_full_disk;
mod support;
#[path = "support/ticks.rs"]
mod ticks;

use std::fs;
use std::path::{Path, PathBuf};

use child::{Ended, command_of, ended, if_child, target_folder, test_name};
use memtrace::{PeakLimit, assert_peak, scope};
use support::Raw;
use ticks::Ticks;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// A package with a copy of this file, so that its baselines are beside the copy.
struct Package {
    folder: tempfile::TempDir,
    /// The executable of the test that created this package.
    test: String,
}

impl Package {
    /// In a child, runs the selected tests instead.
    fn new() -> Self {
        if_child(run_measured_tests);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        fs::write(folder.path().join("tests/baselines.rs"), "").unwrap();
        Self { folder, test: test_name() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn baselines(&self) -> String {
        fs::read_to_string(self.path("tests/baselines.peaks.txt")).unwrap_or_default()
    }

    /// Runs these measured tests in one child.
    fn run(&self, tests: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = command_of(&std::env::current_exe().unwrap(), &self.test);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", self.folder.path()).env("RUST_BACKTRACE", "0");
        command.env_remove("CI").env(TESTS, tests.join(" "));
        ended(command.envs(variables.iter().copied()))
    }

    fn passes(&self, tests: &[&str], variables: &[(&str, &str)]) -> String {
        self.run(tests, variables).well().errors
    }

    fn fails(&self, tests: &[&str], variables: &[(&str, &str)]) -> String {
        let child = self.run(tests, variables);
        assert_eq!(child.status.code(), Some(101), "{child}");
        child.errors
    }
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// The environment variable with the measured tests that a child runs.
const TESTS: &str = "TEST_MEASURED";
/// The environment variable with additional bytes to allocate.
const MORE: &str = "TEST_MORE";

/// Runs them in parallel, each on a thread with its name, like the test harness.
fn run_measured_tests() {
    std::thread::scope(|threads| {
        for name in std::env::var(TESTS).unwrap().split(' ') {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(threads, measured_test(name)).unwrap();
        }
    });
}

fn measured_test(name: &str) -> fn() {
    match name {
        "plain" => || drop(assert_peak!(baseline = "forward", forward())),
        "tolerant" => || drop(assert_peak!(baseline = "forward", tolerance = "10%", limit = "1 MiB", forward())),
        "other" => || drop(assert_peak!("1 MiB", name = "a | b", Raw::new(1000 + more()))),
        "many" => || many(16, false),
        "many_under_signals" => || many(8, true),
        "with_an_older_thread" => with_an_older_thread,
        "in_a_loop" => || {
            [100, 200].into_iter().for_each(|size| PeakLimit::new().limit(1000).run(|| drop(Raw::new(size))).unwrap())
        },
        _ => panic!("no such test: {name}"),
    }
}

fn more() -> usize {
    std::env::var(MORE).map_or(0, |more| more.parse().unwrap())
}

fn forward() -> (Vec<u8>, Vec<u8>) {
    let weights = std::hint::black_box(vec![0u8; 40_000]);
    (weights, scope("activations", || std::hint::black_box(vec![0u8; 60_000 + more()])))
}

fn with_an_older_thread() {
    let (to, sizes) = std::sync::mpsc::channel::<usize>();
    let (give, blocks) = std::sync::mpsc::channel();
    let older = move || sizes.iter().for_each(|size| give.send(Raw::new(size)).unwrap());
    let older = std::thread::spawn(older);
    let ask = || {
        to.send(1 << 20).unwrap();
        drop(blocks.recv().unwrap());
    };
    ask();
    // Its first run must not store less than it may have needed.
    for _ in 0..2 {
        let failure = PeakLimit::new().baseline("asks").run(ask).unwrap_err();
        assert!(failure.is_undecided(), "{failure}");
    }
    drop(to);
    older.join().unwrap();
}

fn many(count: usize, signals: bool) {
    let put = |n: usize| {
        let _ticks = signals.then(Ticks::begin);
        // Nobody can know that the other threads of this test do not work for this one.
        let limit = PeakLimit::new().baseline(format!("block {n:02}")).allow("many");
        drop(limit.run(|| Raw::new(1000 + n)).unwrap());
    };
    std::thread::scope(|threads| (0..count).for_each(|n| drop(threads.spawn(move || put(n)))));
}

const PLAIN: [&str; 1] = ["plain"];
const UPDATE: (&str, &str) = ("MEMTRACE_UPDATE_BASELINES", "1");
const CI: (&str, &str) = ("CI", "true");

#[test]
fn no_baseline_is_stored_for_a_peak_that_is_undecided() {
    let package = Package::new();
    package.passes(&["with_an_older_thread"], &[]);
    assert_eq!(package.baselines(), "");
}

#[test]
fn a_missing_baseline_fails_in_ci_and_is_written_elsewhere() {
    let package = Package::new();
    let failed = package.fails(&PLAIN, &[CI]);
    says(
        &failed,
        &["there is no baseline `forward` for cpu in", "tests/baselines.peaks.txt", "MEMTRACE_UPDATE_BASELINES=1"],
    );
    assert_eq!(package.baselines(), "");
    says(&package.passes(&PLAIN, &[]), &["baseline `forward` in", "new, 97.66 KiB"]);
    let written = package.baselines();
    says(&written, &["# Peaks that the tests", "\n[forward] cpu\npeak 100,000\n", "  60,000  ", "tests/baselines.rs:"]);
    package.passes(&PLAIN, &[CI]);
    assert_eq!(package.baselines(), written, "nothing is written that need not be");
}

#[test]
fn an_increase_past_the_tolerance_fails_with_the_difference_by_line() {
    let package = Package::new();
    package.passes(&PLAIN, &[UPDATE, CI]);
    let written = package.baselines();
    package.passes(&PLAIN, &[CI, (MORE, "1000")]);
    let failed = package.fails(&PLAIN, &[CI, (MORE, "1001")]);
    says(&failed, &["is over its baseline `forward` of 97.66 KiB by 1001 B, 1.0 %; 1 % is allowed"]);
    says(&failed, &["Against the baseline, by line", "+1001 B  59.57 KiB  58.59 KiB  "]);
    says(&failed, &["At the peak, by scope", "activations"]);
    // Cargo's target folder, which is outside this package.
    let saved = failed.split("Snapshot: ").nth(1).and_then(|rest| rest.split(" (drop").next()).unwrap();
    assert!(saved.contains("/memtrace/plain") && std::path::Path::new(saved).exists(), "{saved}");
    package.passes(&["tolerant"], &[CI, (MORE, "10000")]);
    package.passes(&PLAIN, &[("CI", "false")]);
    let both = package.fails(&["tolerant"], &[CI, (MORE, "1000000")]);
    says(&both, &["is over the limit of 1.000 MiB"]);
    assert_eq!(package.baselines(), written);
    says(&package.passes(&PLAIN, &[UPDATE, (MORE, "5000")]), &["97.66 KiB → 102.5 KiB"]);
    says(&package.baselines(), &["[forward] cpu\npeak 105,000\n"]);
    says(&package.passes(&PLAIN, &[CI]), &["forward: the peak is below its baseline by 4.883 KiB"]);
}

/// Where a package's changes are kept: below cargo's target folder.
fn pending_of(package: &Package) -> PathBuf {
    let below = package.path("tests/baselines.peaks.txt").canonicalize().unwrap();
    target_folder().join("memtrace/baselines").join(below.strip_prefix("/").unwrap())
}

#[test]
fn a_peak_that_differs_is_kept_for_review_until_it_matches() {
    let package = Package::new();
    package.passes(&PLAIN, &[UPDATE]);
    let pending = pending_of(&package);
    let kept = || fs::read_to_string(&pending).unwrap_or_default();
    says(&package.fails(&PLAIN, &[CI, (MORE, "5000")]), &["cargo memtrace baselines review"]);
    says(&kept(), &["[forward] cpu\npeak 105,000\n", "  65,000  "]);
    package.passes(&PLAIN, &[CI]);
    assert_eq!(kept(), "", "it matches again");
    package.passes(&PLAIN, &[UPDATE, (MORE, "5000")]);
    package.passes(&PLAIN, &[CI]);
    says(&kept(), &["[forward] cpu\npeak 100,000\n"]);
    package.passes(&PLAIN, &[UPDATE]);
    assert_eq!(kept(), "", "it was accepted by the variable");
    let list = package.path("used");
    fs::write(&list, "").unwrap();
    package.passes(&PLAIN, &[CI, ("MEMTRACE_BASELINES_USED", list.to_str().unwrap())]);
    let file = package.path("tests/baselines.peaks.txt").canonicalize().unwrap();
    assert_eq!(fs::read_to_string(list).unwrap(), format!("{}\tcpu\tforward\n", file.display()));
}

#[test]
fn parallel_tests_lose_no_baseline() {
    let package = Package::new();
    let children = ["many", "plain"].map(|test| (test, &package));
    std::thread::scope(|threads| {
        for (test, package) in children {
            threads.spawn(move || package.passes(&[test], &[UPDATE]));
        }
    });
    let written = package.baselines();
    assert_eq!(written.matches("\n[").count(), 17, "{written}");
    says(&written, &["[block 00] cpu\npeak 1,000\n", "[block 15] cpu\npeak 1,015\n", "[forward] cpu"]);
    package.passes(&["many"], &[CI]);
}

/// Threads that wait for the lock of the file are interrupted there.
#[test]
fn tests_under_ten_thousand_signals_a_second_lose_no_baseline() {
    let package = Package::new();
    package.passes(&["many_under_signals"], &[UPDATE]);
    let written = package.baselines();
    assert_eq!(written.matches("\n[").count(), 8, "{written}");
}

#[test]
fn unreadable_and_unwritable_baselines_are_a_clear_error() {
    let package = Package::new();
    fs::write(package.path("tests/baselines.peaks.txt"), "[forward] cpu\npeak many\n").unwrap();
    says(&package.fails(&PLAIN, &[]), &["cannot read the baselines of", "line 2 is neither", "create it anew"]);
    assert_eq!(package.baselines(), "[forward] cpu\npeak many\n", "it is left as it is");
    let elsewhere = Package::new();
    fs::remove_file(elsewhere.path("tests/baselines.rs")).unwrap();
    let failed = elsewhere.fails(&PLAIN, &[]);
    says(&failed, &["cannot find tests/baselines.rs from", "run the tests with cargo"]);
}

fn rows(path: &Path) -> Vec<serde_json::Value> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn all_peaks_of_a_run_are_in_a_list_and_in_a_summary() {
    let package = Package::new();
    let (json, summary) = (package.path("peaks.json"), package.path("summary.md"));
    fs::write(&summary, "# Build\nfine\n").unwrap();
    let files = [("MEMTRACE_PEAKS", json.to_str().unwrap()), ("MEMTRACE_SUMMARY", summary.to_str().unwrap())];
    package.passes(&["other", "plain"], &files);
    package.fails(&["plain"], &[files[0], files[1], (MORE, "20000")]);
    let rows = rows(&json);
    assert_eq!(rows.len(), 2, "a row that is there already is replaced: {rows:?}");
    let of = |test: &str| rows.iter().find(|row| row["test"] == test).unwrap();
    let (other, forward) = (of("other"), of("plain"));
    assert_eq!((&other["peak"], &other["limit"], &other["passed"]), (&1000.into(), &(1 << 20).into(), &true.into()));
    assert_eq!((&forward["peak"], &forward["baseline"]), (&120_000.into(), &100_000.into()));
    assert_eq!((&forward["passed"], &forward["program"]), (&false.into(), &"baselines".into()));
    let text = fs::read_to_string(&summary).unwrap();
    says(
        &text,
        &[
            "# Build\nfine\n",
            "### Memory",
            "| ✓ | 1000 B (1,000) | 1.000 MiB | - | cpu | `baselines::other` | `a `\\|` b` |",
        ],
    );
    says(&text, &["| ✗ | 117.2 KiB (120,000) | - | 97.66 KiB | cpu | `baselines::plain` | `forward` |"]);
    assert_eq!(text.matches("plain").count(), 1, "{text}");
    fs::write(&summary, text + "more\n").unwrap();
    package.passes(&["other"], &[files[1], (MORE, "24")]);
    let text = fs::read_to_string(&summary).unwrap();
    says(&text, &["more\n", "| ✓ | 1.000 KiB (1,024) |"]);
    assert_eq!(text.matches('✓').count(), 1, "{text}");
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
                (0..5).for_each(|_| drop(package.passes(&["in_a_loop", "other"], &variables)));
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
    let said = package.passes(&["other"], &[("MEMTRACE_PEAKS", "/dev/null/peaks.json")]);
    says(&said, &["MEMTRACE_PEAKS: cannot"]);
    fs::write(package.path("peaks.json"), "not json").unwrap();
    let path = package.path("peaks.json");
    let said = package.passes(&["other"], &[("MEMTRACE_PEAKS", path.to_str().unwrap())]);
    says(&said, &["peaks.json: line 1 does not fit a JSON list of peaks"]);
    assert_eq!(fs::read_to_string(path).unwrap(), "not json", "somebody else's file is left as it is");
}
