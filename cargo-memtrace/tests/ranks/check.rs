//! `check` of ranks: each must hold each limit.

use memtrace_core::Bytes;
use serde_json::{Value, json};

use super::*;

/// How much larger the peaks of ranks 0 to 3 are.
const MORE: [u64; 4] = [0, 1000, 3000, 2000];

fn four(folder: &Path) {
    for (number, more) in (0..).zip(MORE) {
        capture(folder, &format!("{number}.memtrace"), &with_more(number, more));
    }
}

/// The line about ranks 0 to 3, by definition.
fn line(limit: u64, device: Device) -> String {
    let most = peak() + 3000;
    let over: Vec<usize> = (0..4).filter(|rank| peak() + MORE[*rank] > limit).collect();
    let (broken, names) = match &over[..] {
        [] => ("4 of 4 ranks pass", ""),
        [2] => ("1 of 4 ranks fails", ""),
        [2, 3] => ("2 of 4 ranks fail", ": ranks 2, 3"),
        [1, 2, 3] => ("3 of 4 ranks fail", ": ranks 1 to 3"),
        _ => ("4 of 4 ranks fail", ""),
    };
    let worst = if over.len() == 1 { ":" } else { ". Worst:" };
    let (word, by) = match most > limit {
        true => ("over", format!(" by {}", Bytes(most - limit))),
        false => ("within", String::new()),
    };
    let what = format!("the peak of {} on {device} is {word} the limit of {}{by}", Bytes(most), Bytes(limit));
    format!("{broken}{names}{worst} rank 2: {what}\n")
}

#[test]
fn each_rank_must_hold_the_limit_and_the_worst_is_named() {
    let folder = tempfile::tempdir().unwrap();
    four(folder.path());
    let device = main(&rank(0));
    for limit in [0, 999, 1000, 1001, 1999, 2000, 2999, 3000, 3001].map(|more| peak() - 1 + more) {
        let holds = MORE.iter().all(|more| peak() + more <= limit);
        let (out, error) = ends(i32::from(!holds), folder.path(), &["check", ".", "--peak", &limit.to_string()]);
        let wanted = line(limit, device);
        match holds {
            true => assert_eq!((out.starts_with(&format!("ok: {wanted}")), &*error), (true, ""), "{out}"),
            false => assert_eq!((out.contains("ok: "), error), (false, format!("error: {wanted}")), "{out}"),
        }
        assert!(out.contains("Ranks 4, 5 have no recording here."), "{out}");
        let json = ends(i32::from(!holds), folder.path(), &["check", ".", "--peak", &limit.to_string(), "--json"]).0;
        let json: Value = serde_json::from_str(&json).unwrap();
        let check = &json["checks"][0];
        assert_eq!((&check["met"], &check["worst_rank"]), (&json!(holds), &json!(2)));
        for (number, more) in MORE.iter().enumerate() {
            let of = &check["ranks"][number];
            assert_eq!((&of["rank"], &of["met"]), (&json!(number), &json!(peak() + more <= limit)), "{json:#}");
        }
        assert_eq!(json["ranks"]["missing"], json!([{ "first": 4, "last": 5 }]));
    }
}

#[test]
fn what_could_not_be_read_is_exit_code_2_unless_a_limit_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    job(folder.path());
    let (out, error) = ends(2, folder.path(), &["check", ".", "--peak", "1 GiB"]);
    assert_eq!(error, "error: 3 of 7 files could not be read\n");
    assert!(out.starts_with("ok: 4 of 4 ranks pass. Worst: rank "), "{out}");
    let report = ends(2, folder.path(), &["report", "."]).0;
    let missing = |text: &str| text.split_once("What is missing, and what is not known\n").unwrap().1.to_owned();
    assert_eq!(missing(&out), missing(&report), "as `report` says it");
    let (_, error) = ends(1, folder.path(), &["check", ".", "--peak", "1 B"]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert_eq!(lines[0], "error: 3 of 7 files could not be read");
    assert!(lines[1].starts_with("error: 4 of 4 ranks fail. Worst: rank "), "{error}");
    // The files that can be read, one by one.
    let files = ["a.memtrace", "b.memtrace", "c.memtrace", "dump_rank3.pickle"];
    ends(0, folder.path(), &[&["check", "--peak", "1 GiB"][..], &files].concat());
}

#[test]
fn many_ranks_that_break_a_limit_are_folded_and_json_has_them_all() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..24 {
        let mut data = with_more(number, u64::from(number % 2 == 0));
        data.process.launcher.world_size = Some(24);
        capture(folder.path(), &format!("{number}.memtrace"), &data);
    }
    let limit = peak().to_string();
    let (_, error) = ends(1, folder.path(), &["check", ".", "--peak", &limit]);
    let wanted = "error: 12 of 24 ranks fail: ranks 0, 2, 4, 6, 8, 10, 12, 14, 4 more ranges. Worst: rank 0: ";
    assert!(error.starts_with(wanted), "{error}");
    let json = ends(1, folder.path(), &["check", ".", "--peak", &limit, "--json"]).0;
    let json: Value = serde_json::from_str(&json).unwrap();
    let of = json["checks"][0]["ranks"].as_array().unwrap();
    let broken = of.iter().filter(|rank| rank["met"] == false).map(|rank| rank["rank"].as_u64().unwrap());
    assert_eq!(broken.collect::<Vec<_>>(), (0..12).map(|number| 2 * number).collect::<Vec<_>>());
}

#[test]
fn a_rank_that_recorded_nothing_does_not_tell() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "0.memtrace", &rank(0));
    let mut empty = rank(1);
    empty.devices.clear();
    capture(folder.path(), "1.memtrace", &empty);
    let (out, error) = ends(3, folder.path(), &["check", ".", "--peak", "1 GiB"]);
    assert_eq!(
        error, "undecided: 1 of 2 ranks cannot be judged: rank 1: nothing was recorded on the device\n",
        "{out}"
    );
    let (_, error) = ends(1, folder.path(), &["check", ".", "--peak", "1 B"]);
    assert!(
        error.contains("undecided: 1 of 2 ranks cannot be judged") && error.contains("1 of 2 ranks fails"),
        "{error}"
    );
    let (_, error) = ends(2, folder.path(), &["check", ".", "--peak", "1 B", "--device", "cuda:77"]);
    assert_eq!(error, "error: no rank has anything on this device; choose another with --device\n");
}

#[test]
fn ranks_have_no_baseline_and_are_of_one_job() {
    let folder = tempfile::tempdir().unwrap();
    four(folder.path());
    let (out, error) = ends(2, folder.path(), &["check", ".", "--baseline", "0.memtrace"]);
    assert_eq!(out, "");
    assert!(
        error.contains("--baseline is for one recording") && error.contains("memtrace diff BEFORE AFTER"),
        "{error}"
    );
    for number in 0..2 {
        let mut other = with_more(number, 5000);
        other.process.launcher.job = Some("8.0".into());
        capture(folder.path(), &format!("other{number}.memtrace"), &other);
    }
    let limit = (peak() + 3000).to_string();
    assert!(ends(2, folder.path(), &["check", ".", "--peak", &limit]).1.contains("recordings of 2 jobs"));
    ends(0, folder.path(), &["check", ".", "--peak", &limit, "--job", "1"]);
    let (_, error) = ends(1, folder.path(), &["check", ".", "--peak", &limit, "--job", "2"]);
    assert!(error.contains("2 of 2 ranks fail"), "{error}");
}
