//! `report` of the ranks of a job, as a user runs it: a folder with good and bad files, files of two jobs, and other commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace_core::export::{Capture, Export, Pickle};
use memtrace_core::snapshot::{Launcher, Process};
use memtrace_core::{SnapshotData, open};
use serde_json::{Value, json};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

/// A rank of a job of 6.
fn rank(number: u32) -> SnapshotData {
    let mut data = open(recording()).unwrap();
    data.process = Process { rank: Some(number), pid: 100 + number, host: "node".into(), ..data.process };
    data.process.launcher = Launcher { world_size: Some(6), job: Some("7.0".into()) };
    data
}

fn write(folder: &Path, name: &str, format: &dyn Export, data: &SnapshotData) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.write(data, &mut bytes).unwrap();
    fs::write(folder.join(name), &bytes).unwrap();
    bytes
}

fn capture(folder: &Path, name: &str, data: &SnapshotData) -> Vec<u8> {
    write(folder, name, &Capture::default(), data)
}

fn memtrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder).env_remove("COLUMNS").env("NO_COLOR", "1");
    command.output().unwrap()
}

/// Standard output and standard error of a command that must end so.
#[track_caller]
fn ends(code: i32, folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = memtrace(folder, arguments);
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{error}");
    (out, error)
}

/// Ranks 0 and 1, rank 2 killed, rank 3 a PyTorch snapshot, rank 4 torn, an empty file, a foreign file, and notes.
fn job(folder: &Path) {
    capture(folder, "a.memtrace", &rank(0));
    let peak = rank(0).devices[0].peak.total();
    let mut second = rank(1);
    // A temporary of the second rank was larger.
    second.devices[0].peak.below_threshold += 1000;
    second.devices[0].below_threshold += 1000;
    second.devices[0].stats.below_threshold += 1000;
    assert!(capture(folder, "b.memtrace", &second).len() > 100 && peak > 0);
    let killed = capture(folder, "c.memtrace", &rank(2));
    // Without the end mark.
    fs::write(folder.join("c.memtrace"), &killed[..killed.len() - 13]).unwrap();
    write(folder, "dump_rank3.pickle", &Pickle::default(), &rank(9));
    fs::write(folder.join("torn_rank4.memtrace"), &killed[..60]).unwrap();
    fs::write(folder.join("empty.memtrace"), "").unwrap();
    fs::write(folder.join("foreign.memtrace"), "a picture").unwrap();
    fs::write(folder.join("notes.txt"), "no recording").unwrap();
}

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

#[test]
fn a_command_that_reads_one_recording_says_so_of_a_folder_with_several() {
    let folder = tempfile::tempdir().unwrap();
    let several = folder.path().join("ranks");
    fs::create_dir(&several).unwrap();
    capture(&several, "a.memtrace", &rank(0));
    // With one, it is clear what is meant.
    ends(0, folder.path(), &["leaks", "ranks"]);
    capture(&several, "b.memtrace", &rank(1));
    let commands: [&[&str]; 9] = [
        &["advise", "ranks"],
        &["leaks", "ranks"],
        &["temporaries", "ranks"],
        &["explain", "ranks", "model.rs:7"],
        &["diff", "ranks", "ranks/a.memtrace"],
        &["view", "ranks", "-o", "out.html"],
        &["timeline", "ranks"],
        &["export", "ranks", "--to", "json", "-o", "-"],
        &["check", "ranks", "--peak", "1GiB"],
    ];
    for command in commands {
        let (out, error) = ends(2, folder.path(), command);
        let wanted = "error: ranks has 2 recordings, and this command reads one: name it; `cargo memtrace report ranks` \
                      shows them as ranks\n";
        assert_eq!((&*out, &*error), ("", wanted), "{command:?}");
    }
    assert!(ends(2, folder.path(), &["report", "ranks", "--at", "end"]).1.contains("at their peaks"));
}
