//! `report` of ranks: good and bad files, JSON that adds up, and two jobs.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_folder_with_a_torn_an_empty_and_a_foreign_file_is_reported_as_far_as_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    job(folder.path());
    let (out, error) = ends(2, folder.path(), &["report", "."]);
    assert_eq!(error, "error: 3 of 7 files could not be read\n");
    for line in [
        "4 ranks read. Worst: rank ",
        "Rank 5 has no recording here.",
        "The launcher started 6 ranks.",
        "Rank 2: killed, or still recording; the state at the last flush.",
        "Rank 3: the rank is that of the file's name.",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    for (file, why) in
        [("torn_rank4", "before its first commit"), ("empty", "begin like one"), ("foreign", "begin like one")]
    {
        let of_file = |line: &&str| line.starts_with("Not read: ") && line.contains(file) && line.contains(why);
        assert_eq!(out.lines().filter(of_file).count(), 1, "{file}: {out}");
    }
    assert!(!out.contains("notes"), "{out}");
    // The files, one by one, are the same ranks.
    let files = ["a.memtrace", "b.memtrace", "c.memtrace", "dump_rank3.pickle"];
    let (named, error) = ends(0, folder.path(), &[&["report"][..], &files].concat());
    assert_eq!((named.lines().next(), &*error), (out.lines().next(), ""));
}

#[test]
fn the_json_of_ranks_adds_up_to_the_reports_of_each() {
    let folder = tempfile::tempdir().unwrap();
    job(folder.path());
    let json = |code, arguments: &[&str]| -> Value {
        serde_json::from_str(&ends(code, folder.path(), &[arguments, &["--json", "--top", "1000"]].concat()).0).unwrap()
    };
    let ranks = json(2, &["report", "."]);
    assert_eq!(ranks["version"], 2);
    let found = &ranks["ranks"];
    assert_eq!((&found["count"], &found["world_size"]), (&json!(4), &json!(6)));
    assert_eq!(found["missing"], json!([{ "first": 5, "last": 5 }]));
    assert_eq!(found["unread"].as_array().unwrap().len(), 3);
    let section = |key: &str| {
        let all = ranks["sections"].as_array().unwrap().iter();
        all.clone().find(|section| section["key"] == key).unwrap()["rows"].as_array().unwrap().clone()
    };
    let (mut all, mut sum) = (Vec::new(), 0);
    for row in section("ranks") {
        let alone = json(0, &["report", row["file"].as_str().unwrap(), "--device", row["device"].as_str().unwrap()]);
        let peak = &alone["devices"][0]["peak"]["total_bytes"];
        assert_eq!(row["peak_bytes"], *peak, "{row}");
        all.push(peak.as_u64().unwrap());
        sum += peak.as_u64().unwrap();
    }
    assert_eq!(all.len(), 4);
    let of_rows: u64 = section("ranks_by_line").iter().map(|row| row["sum_bytes"].as_u64().unwrap()).sum();
    assert_eq!(of_rows, sum, "to the byte");
    let cut: u64 = {
        let all: Value =
            serde_json::from_str(&ends(2, folder.path(), &["report", ".", "--json", "--top", "1"]).0).unwrap();
        let sections = all["sections"].as_array().unwrap().clone();
        let rows = sections.iter().find(|section| section["key"] == "ranks_by_line").unwrap()["rows"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 2, "the others are one row");
        rows.as_array().unwrap().iter().map(|row| row["sum_bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(cut, sum);
}

#[test]
fn recordings_of_two_jobs_are_never_added_up() {
    let folder = tempfile::tempdir().unwrap();
    for (name, number, job) in [("a", 0, "7.0"), ("b", 1, "7.0"), ("c", 0, "7.1"), ("d", 1, "7.1"), ("e", 2, "7.1")] {
        let mut data = rank(number);
        data.process.launcher.job = Some(job.into());
        capture(folder.path(), &format!("{name}.memtrace"), &data);
    }
    let (out, error) = ends(2, folder.path(), &["report", "."]);
    assert_eq!(out, "");
    assert!(
        error.starts_with("error: these are recordings of 2 jobs: 1 (net, 2 files from a.memtrace on), 2 (net, 3 ")
    );
    assert!(error.contains("choose one with --job N"), "{error}");
    let (second, _) = ends(0, folder.path(), &["report", ".", "--job", "2"]);
    assert!(second.contains("3 ranks read.") && second.contains("Ranks 3 to 5 have no recording here."), "{second}");
    assert!(ends(2, folder.path(), &["report", ".", "--job", "3"]).1.contains("there is no job 3: there are 2"));
    let (first, _) = ends(0, folder.path(), &["report", "a.memtrace", "b.memtrace"]);
    assert!(first.contains("2 ranks read."), "{first}");
}
