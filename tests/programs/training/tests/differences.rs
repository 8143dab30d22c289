//! `diff` on recordings of a real program: pairs of equal runs have no change, and a planted regression is the first
//! row, with its line and its bytes. `MEMTRACE_TEST_DIFFERENCES=full` runs twenty pairs and all regressions.

use std::path::Path;
use std::process::Command;

use memtrace_core::analysis::{Diff, DiffRow, Key, Moment};
use memtrace_core::report::{DiffOptions, Report};
use memtrace_core::{Recording, SnapshotData};

/// `diff` folds smaller changes by default. Equal runs differ by less: the one block whose operator depends on the order
/// of a hash map, candle's gradient of a bias, has 4 KiB, and the stacks of threads are allocated at different times.
const THRESHOLD: u64 = 64 << 10;

/// Parameters of ResNet-50 with its running statistics, in `f32`.
const PARAMETERS: u64 = 4 * (25_557_032 + 53_120);
/// Height and width of an image.
const IMAGE: u64 = 32;
/// Bytes of one batch of images.
const BATCH: u64 = 4 * 2 * 3 * IMAGE * IMAGE;

/// Each regression with the bytes that its line must add at least and at most. The line ends with `// planted: NAME`.
const REGRESSIONS: [(&str, u64, u64); 10] = [
    ("gradients", 2 * PARAMETERS, 3 * PARAMETERS),
    ("average", PARAMETERS - PARAMETERS / 100, PARAMETERS),
    ("moment", PARAMETERS - PARAMETERS / 100, PARAMETERS),
    ("clipping", PARAMETERS - PARAMETERS / 100, PARAMETERS),
    ("checkpoint", 2 * PARAMETERS, 4 * PARAMETERS),
    ("one_hot", 4 * 512 * 1000, 4 * 512 * 1000),
    ("mask", 2 * 16 * BATCH, 2 * 16 * BATCH),
    ("queue", 30 * BATCH, 40 * BATCH),
    ("predictions", (4 << 20) - 8, 4 << 20),
    ("losses", 5 << 20, 6 << 20),
];

fn is_full() -> bool {
    std::env::var("MEMTRACE_TEST_DIFFERENCES").is_ok_and(|size| size == "full")
}

fn run(folder: &Path, regression: &str) -> SnapshotData {
    let file = folder.join(format!("run{regression}.memtrace"));
    let _ = std::fs::remove_file(&file);
    let mut program = Command::new(env!("CARGO_BIN_EXE_training"));
    program.arg(&file).args([&IMAGE.to_string(), regression]);
    assert!(program.status().unwrap().success(), "{regression}");
    memtrace_core::open(&file).unwrap()
}

fn diff(before: &SnapshotData, after: &SnapshotData, key: Key) -> Diff {
    let [before, after] = [before, after].map(Recording::new);
    let at_peak = |recording| Recording::device_or_main(recording, None).unwrap().at_peak();
    Diff::of(&at_peak(&before), &at_peak(&after), key)
}

/// The line of the program that plants a regression.
fn line_of(regression: &str) -> usize {
    let source = include_str!("../src/main.rs");
    let mark = format!("// planted: {regression}");
    1 + source.lines().position(|line| line.ends_with(&mark)).unwrap()
}

#[test]
fn equal_runs_do_not_differ_and_a_regression_is_the_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let (pairs, regressions) = if is_full() { (20, &REGRESSIONS[..]) } else { (1, &REGRESSIONS[..1]) };
    let mut base = run(folder.path(), "");
    let mut largest = 0;
    for _ in 0..pairs {
        let again = run(folder.path(), "");
        largest = largest.max(largest_change(&base, &again));
        base = again;
    }
    println!("{pairs} pairs of equal runs: the largest change of a row is {largest} bytes");
    for (name, least, most) in regressions {
        let planted = run(folder.path(), name);
        let row = first_row(&base, &planted, name);
        println!("{name}: {:+} bytes, {}", row.change(), row.label);
        if *name == "gradients" {
            the_fix_of_the_leaf_gradients(&planted, &base);
        }
        assert!(row.change() >= *least as i64 && row.change() <= *most as i64, "{name}: {row:?}");
    }
}

/// Over all tables. Nothing may reach the threshold.
fn largest_change(before: &SnapshotData, after: &SnapshotData) -> u64 {
    let keys = [Key::Line, Key::Function, Key::Operator, Key::Category, Key::Scope, Key::Module];
    let changes = keys.map(|key| {
        let diff = diff(before, after, key);
        let row = diff.rows.first().unwrap();
        assert!(row.change().unsigned_abs() < THRESHOLD, "{key:?}: {row:?}");
        row.change().unsigned_abs()
    });
    let report = Report::of_diff(before, after, &DiffOptions::default()).unwrap();
    assert_eq!(report.answer[1], "No row changed by 64.00 KiB or more.");
    changes.into_iter().max().unwrap()
}

/// The row that the report shows first, which is the planted line's.
fn first_row(before: &SnapshotData, after: &SnapshotData, regression: &str) -> DiffRow {
    let row = diff(before, after, Key::Line).rows.remove(0);
    let report = Report::of_diff(before, after, &DiffOptions::default()).unwrap();
    assert!(report.answer[1].starts_with(&format!("Largest change: {}", row.label)), "{:?}", report.answer);
    if regression == "losses" {
        // A kept loss keeps the activations of the model's lines.
        assert!(row.label.contains("resnet/model.rs"), "{row:?}");
    } else {
        let line = format!("src/main.rs:{} ", line_of(regression));
        assert!(row.label.contains(&line), "{regression} is at {line}: {row:?}");
    }
    row
}

/// The fix of docs/findings.md, *Gradients keep the graph*: what is live at the end shrinks on the line of `backward`.
fn the_fix_of_the_leaf_gradients(kept: &SnapshotData, fixed: &SnapshotData) {
    let options = DiffOptions { before: Moment::End, after: Moment::End, ..DiffOptions::default() };
    let report = Report::of_diff(kept, fixed, &options).unwrap();
    let line = format!("src/main.rs:{} ", line_of("gradients"));
    println!("{}", report.answer.join("\n"));
    assert!(report.answer[1].contains(&line) && report.answer[1].ends_with("(shrunk)."), "{:?}", report.answer);
    let gone = diff(kept, fixed, Key::Line).rows[0].change();
    assert!(gone < -2 * PARAMETERS as i64, "the graph of the gradients is twice the weights: {gone}");
}
