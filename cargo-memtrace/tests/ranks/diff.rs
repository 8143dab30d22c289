//! `diff` of two folders: pairs of ranks, sums to the byte, and what is missing on either side.

use std::collections::BTreeMap;

use memtrace_core::Bytes;
use serde_json::{Value, json};

use super::*;

/// How much larger the peaks are, by rank. Rank 2 is gone afterwards, and rank 3 new.
const BEFORE: [(u32, u64); 3] = [(0, 0), (1, 1000), (2, 0)];
const AFTER: [(u32, u64); 3] = [(0, 5000), (1, 500), (3, 7)];

fn two_jobs(folder: &Path) {
    for (name, ranks) in [("before", BEFORE), ("after", AFTER)] {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        ranks
            .iter()
            .for_each(|(number, more)| _ = capture(&folder, &format!("{number}.memtrace"), &with_more(*number, *more)));
    }
}

fn json(code: i32, folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&ends(code, folder, &[arguments, &["--json"]].concat()).0).unwrap()
}

fn rows<'a>(json: &'a Value, key: &str) -> &'a Vec<Value> {
    let sections = json["sections"].as_array().unwrap();
    let section = sections.iter().find(|section| section["key"] == key).unwrap_or_else(|| panic!("{key}: {json:#}"));
    section["rows"].as_array().unwrap()
}

fn sum(rows: &[Value], key: &str) -> i64 {
    rows.iter().map(|row| row[key].as_i64().unwrap_or(0)).sum()
}

#[test]
fn the_sums_of_all_rows_are_those_of_the_ranks_peaks() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    let peak = peak() as i64;
    let (before, after) = (3 * peak + 1000, 3 * peak + 5507);
    for (top, threshold) in [("1000", "1B"), ("1", "1B"), ("20", "64KiB")] {
        let keys = ["line", "operator", "category", "scope", "thread", "name"];
        let arguments = ["diff", "before", "after", "--by", &keys.join(","), "--top", top, "--threshold", threshold];
        let found = json(0, folder.path(), &arguments);
        let ranks = rows(&found, "diff_ranks");
        let sums = |rows: &[Value]| ["before_bytes", "after_bytes", "change_bytes"].map(|key| sum(rows, key));
        assert_eq!(sums(ranks), [before, after, after - before]);
        for key in keys {
            assert_eq!(sums(rows(&found, &format!("diff_ranks_by_{key}"))), [before, after, after - before], "{key}");
        }
    }
    let found = json(0, folder.path(), &["diff", "before", "after"]);
    let row = |rank: u32, before: Option<i64>, after: Option<i64>| {
        let device = |side: Option<i64>| side.map(|_| main(&super::rank(0)).to_string());
        let file = |side: Option<i64>| side.map(|_| format!("{rank}.memtrace"));
        json!({
            "rank": rank,
            "change_bytes": after.unwrap_or(0) - before.unwrap_or(0),
            "before_bytes": before,
            "after_bytes": after,
            "before_device": device(before),
            "after_device": device(after),
            "before_file": file(before),
            "after_file": file(after),
        })
    };
    let wanted = vec![
        row(0, Some(peak), Some(peak + 5000)),
        row(3, None, Some(peak + 7)),
        row(2, Some(peak), None),
        row(1, Some(peak + 1000), Some(peak + 500)),
    ];
    assert!(5000 > peak + 7 && peak > 500, "the order above");
    assert_eq!(*rows(&found, "diff_ranks"), wanted);
    assert_eq!(
        (&found["ranks_before"]["worst"]["rank"], &found["ranks_after"]["worst"]["rank"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn the_first_sentence_is_about_the_rank_that_changed_most() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    let (out, error) = ends(0, folder.path(), &["diff", "before", "after"]);
    let of = |more: u64| Bytes(peak() + more);
    let percent = |change: u64, of: u64| format!("(+{:.1} %)", 100.0 * change as f64 / of as f64);
    let wanted = format!(
        "Rank 0 changed most: {} before, {} after: +{} {}. Worst: {} before (rank 1), {} after (rank 0): +{} {}.",
        of(0),
        of(5000),
        Bytes(5000),
        percent(5000, peak()),
        of(1000),
        of(5000),
        Bytes(4000),
        percent(4000, peak() + 1000),
    );
    assert_eq!((out.lines().nth(1), &*error), (Some(&*wanted), ""));
    assert!(out.contains("Only before: rank 2. Only after: rank 3."), "{out}");
    let (markdown, _) = ends(0, folder.path(), &["diff", "before", "after", "--md"]);
    assert!(markdown.starts_with("### memtrace: difference of the ranks of net\n"), "{markdown}");
}

/// Rows by their labels: before and after.
type Rows = BTreeMap<String, (i64, i64)>;

fn added(all: &mut Rows, found: &Value, key: &str) {
    for row in rows(found, key) {
        let of = all.entry(row["label"].as_str().unwrap().to_owned()).or_default();
        *of = (of.0 + row["before_bytes"].as_i64().unwrap(), of.1 + row["after_bytes"].as_i64().unwrap());
    }
}

#[test]
fn rows_over_ranks_are_the_sums_of_the_differences_of_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    // Rows that did not change are one with that number; each change is one.
    fs::remove_file(folder.path().join("before/2.memtrace")).unwrap();
    fs::remove_file(folder.path().join("after/3.memtrace")).unwrap();
    for key in ["line", "category"] {
        let options = ["--by", key, "--top", "1000", "--threshold", "1B"];
        let mut wanted = Rows::new();
        for number in ["0.memtrace", "1.memtrace"] {
            let files = [format!("before/{number}"), format!("after/{number}")];
            let arguments = [&["diff", &files[0], &files[1]][..], &options].concat();
            added(&mut wanted, &json(0, folder.path(), &arguments), &format!("diff_by_{key}"));
        }
        let mut found = Rows::new();
        let arguments = [&["diff", "before", "after"][..], &options].concat();
        added(&mut found, &json(0, folder.path(), &arguments), &format!("diff_ranks_by_{key}"));
        assert!(wanted.len() > 1, "{wanted:?}");
        assert_eq!(found, wanted, "{key}");
    }
}

#[test]
fn what_could_not_be_read_is_named_on_its_side() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    [&before, &after].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    job(&before);
    job(&after);
    fs::remove_file(after.join("empty.memtrace")).unwrap();
    // A second file of rank 0, which ended earlier.
    let mut second = with_more(0, 9000);
    second.process.duration_ns /= 2;
    capture(&after, "older.memtrace", &second);
    let (out, error) = ends(2, folder.path(), &["diff", "before", "after"]);
    assert_eq!(error, "error: 5 of 14 files could not be read\n");
    for line in [
        "No rank's peak changed. ",
        "Both: Rank 5 has no recording here.",
        "Both: Rank 2: killed, or still recording; the state at the last flush.",
        "After: Left out: older.memtrace, of the same rank as a.memtrace.",
    ] {
        assert_eq!(out.lines().filter(|found| found.starts_with(line)).count(), 1, "{line}: {out}");
    }
    let not_read = |side: &str, file: &str| {
        out.lines().any(|line| line.starts_with(&format!("{side}: Not read: ")) && line.contains(file))
    };
    assert!(not_read("Before", "before/empty") && not_read("Before", "before/torn_rank4"), "{out}");
    assert!(not_read("After", "after/foreign") && not_read("After", "after/torn_rank4"), "{out}");
    let found = json(2, folder.path(), &["diff", "before", "after"]);
    let unread = |side: &str| found[side]["unread"].as_array().unwrap().len();
    assert_eq!((unread("ranks_before"), unread("ranks_after")), (3, 2));
}

#[test]
fn ranks_are_paired_by_number_and_of_one_job_on_each_side() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    let mut nameless = rank(0);
    (nameless.process.rank, nameless.process.pid) = (None, 77);
    capture(&folder.path().join("after"), "train.memtrace", &nameless);
    let (out, error) = ends(2, folder.path(), &["diff", "before", "after"]);
    assert_eq!(out, "");
    assert!(
        error.contains("no rank is known of train.memtrace") && error.contains("such as rank3.memtrace"),
        "{error}"
    );
    fs::remove_file(folder.path().join("after/train.memtrace")).unwrap();
    // The other job is in the same folder.
    for (number, more) in AFTER {
        let mut data = with_more(number, more);
        data.process.launcher.job = Some("8.0".into());
        capture(&folder.path().join("before"), &format!("x{number}.memtrace"), &data);
    }
    let error = ends(2, folder.path(), &["diff", "before", "after"]).1;
    assert!(error.starts_with("error: before: these are recordings of 2 jobs: "), "{error}");
    assert!(error.ends_with("choose one with --job N\n"), "{error}");
    let error = ends(2, folder.path(), &["diff", "after", "before"]).1;
    assert!(error.ends_with("choose one with --job-after N\n"), "{error}");
    let apart = ends(0, folder.path(), &["diff", "before", "after", "--job", "1", "--job-after", "1"]).0;
    let together = ends(0, folder.path(), &["diff", "before", "before", "--job", "1", "--job-after", "2"]).0;
    assert_eq!(together, apart);
    for at in [&["--at", "end"][..], &["--at-after", "end"], &["--at", "end", "--at-after", "peak"]] {
        let error = ends(2, folder.path(), &[&["diff", "after", "after"][..], at].concat()).1;
        assert!(error.contains("ranks are compared at their peaks"), "{error}");
    }
}

#[test]
fn two_folders_with_one_recording_each_are_two_recordings() {
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [("before", 0), ("after", 70_000)] {
        fs::create_dir(folder.path().join(name)).unwrap();
        capture(&folder.path().join(name), "0.memtrace", &with_more(0, more));
    }
    let folders = ends(0, folder.path(), &["diff", "before", "after"]);
    let files = ends(0, folder.path(), &["diff", "before/0.memtrace", "after/0.memtrace"]);
    assert_eq!(folders, files);
    assert!(folders.0.contains("At the peak"), "{folders:?}");
}

#[test]
fn a_rank_is_compared_on_the_device_of_the_rank_after() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    // Before, a GPU was used, too.
    for (number, more) in BEFORE {
        let mut data = with_more(number, more);
        let mut gpu = rank(number).devices.remove(0);
        gpu.device = Device::Cuda(0);
        data.devices.push(gpu);
        assert_eq!(main(&data), Device::Cuda(0));
        capture(&folder.path().join("before"), &format!("{number}.memtrace"), &data);
    }
    let found = json(0, folder.path(), &["diff", "before", "after"]);
    let row = |number: u32| rows(&found, "diff_ranks").iter().find(|row| row["rank"] == number).unwrap();
    assert_eq!((&row(1)["before_device"], &row(1)["before_bytes"]), (&json!("cpu"), &json!(peak() + 1000)));
    // Rank 2 has no partner, so its own main device counts.
    assert_eq!((&row(2)["before_device"], &row(2)["before_bytes"]), (&json!("cuda:0"), &json!(peak())));
}

/// Files of both sides, named one by one, are what their folders are.
#[test]
fn files_are_compared_as_their_folders() {
    let folder = tempfile::tempdir().unwrap();
    two_jobs(folder.path());
    let of_folders = ends(0, folder.path(), &["diff", "before", "after"]).0;
    let before = BEFORE.map(|(rank, _)| format!("before/{rank}.memtrace"));
    let after = AFTER.map(|(rank, _)| format!("after/{rank}.memtrace"));
    let [before, after] = [&before, &after].map(|files| files.each_ref().map(String::as_str));
    let of_files = [&["diff"], &before[..], &["--after"], &after].concat();
    assert_eq!(ends(0, folder.path(), &of_files).0, of_folders);
    let of_both = [&["diff"], &before[..], &["--after", "after"]].concat();
    assert_eq!(ends(0, folder.path(), &of_both).0, of_folders);
    let one = ["diff", before[0], "--after", after[0]];
    assert_eq!(ends(0, folder.path(), &one).0, ends(0, folder.path(), &["diff", before[0], after[0]]).0);
    for wrong in [&before[..1], &before] {
        let error = ends(2, folder.path(), &[&["diff"], wrong].concat()).1;
        assert!(error.contains("give BEFORE and AFTER, or several"), "{error}");
    }
}
