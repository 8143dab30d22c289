//! Commands that read one recording: of a folder they read the worst rank or the one that is named, or they refuse it. And
//! `export`, which writes each of them.

use super::*;

/// A rank of the folder whose line 7 is in a function of this rank's own.
fn own(number: u32, more: u64) -> SnapshotData {
    let mut data = with_more(number, more);
    for frame in data.stacks.frames.iter_mut().filter(|frame| frame.line.is_some_and(|line| line.get() == 7)) {
        frame.function = Some(format!("Net::forward_{number}"));
    }
    data
}

/// Four ranks, of which the third has the largest peak.
fn four(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for (number, more) in [(0, 10), (1, 20), (2, 4000), (3, 30)] {
        capture(folder, &format!("{number}.memtrace"), &own(number, more));
    }
}

const WORST: &str = "memtrace: reading rank 2, which has the largest peak of 4 ranks: ranks/2.memtrace\n";

#[test]
fn a_folder_of_which_no_file_can_be_read_has_no_rank() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("ranks")).unwrap();
    ["a", "b"].iter().for_each(|name| fs::write(folder.path().join(format!("ranks/{name}.memtrace")), "junk").unwrap());
    let (out, error) = ends(2, folder.path(), &["explain", "ranks", "x.rs:1", "--rank", "9"]);
    assert_eq!(out, "");
    assert!(error.ends_with("error: there is no recording of rank 9; no file could be read\n"), "{error}");
}

#[test]
fn explain_reads_the_worst_rank_or_the_one_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    four(&folder.path().join("ranks"));
    let explain =
        |code, of: &str, more: &[&str]| ends(code, folder.path(), &[&["explain", of, "model.rs:7"], more].concat());
    let alone = |number: u32| explain(0, &format!("ranks/{number}.memtrace"), &[]).0;
    assert!((0..4).all(|number| alone(number).contains(&format!("forward_{number}"))));
    assert_eq!(explain(0, "ranks", &[]), (alone(2), WORST.to_owned()));
    let read = "memtrace: reading rank 1: ranks/1.memtrace\n";
    assert_eq!(explain(0, "ranks", &["--rank", "1"]), (alone(1), read.to_owned()));
    let (out, error) = explain(2, "ranks", &["--rank", "7"]);
    assert_eq!(
        (&*out, &*error),
        ("", "error: there is no recording of rank 7; there are recordings of ranks 0 to 3\n")
    );
    let error = explain(2, "ranks/1.memtrace", &["--rank", "1"]).1;
    assert!(error.contains("--rank is for several recordings"), "{error}");
    // Of several files it is as of their folder, the line first or last.
    let files = ["ranks/1.memtrace", "ranks/2.memtrace", "ranks/3.memtrace"];
    let worst = WORST.replace("4 ranks", "3 ranks");
    assert_eq!(
        ends(0, folder.path(), &[&["explain"], &files[..], &["model.rs:7"]].concat()),
        (alone(2), worst.clone())
    );
    assert_eq!(ends(0, folder.path(), &[&["explain", "model.rs:7"], &files[..]].concat()), (alone(2), worst));
    let error = ends(2, folder.path(), &[&["explain", "no.memtrace"], &files[..], &["model.rs:7"]].concat()).1;
    assert!(error.contains("No such file: no.memtrace, model.rs:7; only one"), "{error}");
    // Another file may be that of the worst rank. That matters unless a rank is named.
    fs::write(folder.path().join("ranks/torn.memtrace"), "").unwrap();
    let (out, error) = explain(2, "ranks", &[]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!((out, lines.len()), (alone(2), 3), "{error}");
    assert!(lines[0].starts_with("error: ") && lines[0].contains("ranks/torn.memtrace"), "{error}");
    assert_eq!((lines[1], lines[2]), (WORST.trim_end(), "error: 1 of 5 files could not be read"));
    assert_eq!(explain(0, "ranks", &["--rank", "1"]), (alone(1), read.to_owned()));
}

#[test]
fn of_two_jobs_in_a_folder_one_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    four(&folder.path().join("ranks"));
    let mut other = own(0, 9000);
    other.process.launcher.job = Some("8.0".into());
    capture(&folder.path().join("ranks"), "other.memtrace", &other);
    let explain =
        |code, more: &[&str]| ends(code, folder.path(), &[&["explain", "ranks", "model.rs:7"], more].concat()).1;
    assert!(explain(2, &[]).ends_with("choose one with --job N\n"));
    assert_eq!(explain(0, &["--job", "1"]), WORST);
    assert!(explain(0, &["--job", "2"]).contains("ranks/other.memtrace"));
}

#[test]
fn a_launcher_that_was_recorded_beside_the_ranks_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("ranks");
    four(&ranks);
    let mut launcher = own(0, 9000);
    (launcher.process.rank, launcher.process.pid, launcher.process.program) = (None, 9, "mpirun".into());
    launcher.process.started_unix_us -= 1;
    capture(&ranks, "launcher.memtrace", &launcher);
    let left_out = "left out: launcher.memtrace of mpirun, which ran beside the ranks (--job 1 reads it)";
    let (report, said) = ends(0, folder.path(), &["report", "ranks"]);
    assert!(report.contains("4 ranks read. Worst: rank 2") && !report.contains("mpirun"), "{report}");
    assert_eq!(said, format!("memtrace: {left_out}\n"));
    let (report, said) = ends(0, folder.path(), &["report", "ranks", "--job", "1"]);
    assert!(report.contains("1 rank read. Worst: launcher.memtrace") && said.is_empty(), "{report}{said}");
}

#[test]
fn view_makes_the_page_of_the_worst_rank_and_of_two_folders_that_of_one_rank() {
    let folder = tempfile::tempdir().unwrap();
    four(&folder.path().join("ranks"));
    let view = |code, more: &[&str]| ends(code, folder.path(), &[&["view", "--no-open"], more].concat()).1;
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let same = |made: &str, arguments: &[&str]| {
        view(0, &[arguments, &["-o", "alone.html"]].concat());
        assert!(page(made) == page("alone.html"), "{made} is not the page of {arguments:?}");
        fs::remove_file(folder.path().join("alone.html")).unwrap();
    };
    let said = view(0, &["ranks", "-o", "worst.html"]);
    assert!(said.starts_with(WORST) && said.ends_with("wrote worst.html\n"), "{said}");
    same("worst.html", &["ranks/2.memtrace"]);
    view(0, &["ranks", "--rank", "3", "-o", "three.html"]);
    same("three.html", &["ranks/3.memtrace"]);
    // Afterwards rank 1 is the worst.
    let after = folder.path().join("after");
    fs::create_dir(&after).unwrap();
    [(0, 5), (1, 6000)]
        .into_iter()
        .for_each(|(number, more)| _ = capture(&after, &format!("x{number}.memtrace"), &own(number, more)));
    view(0, &["ranks", "after", "-o", "both.html"]);
    same("both.html", &["ranks/1.memtrace", "after/x1.memtrace"]);
    view(0, &["ranks", "after", "--rank", "0", "-o", "zero.html"]);
    same("zero.html", &["ranks/0.memtrace", "after/x0.memtrace"]);
    view(0, &["ranks/3.memtrace", "after", "--rank", "0", "-o", "mixed.html"]);
    same("mixed.html", &["ranks/3.memtrace", "after/x0.memtrace"]);
    let error = view(2, &["ranks/3.memtrace", "after/x0.memtrace", "--rank", "0", "-o", "none.html"]);
    assert!(error.contains("--rank is for several recordings"), "{error}");
    let files = ["ranks/0.memtrace", "ranks/1.memtrace", "ranks/2.memtrace"];
    view(0, &[&files[..], &["-o", "listed.html"]].concat());
    same("listed.html", &["ranks/2.memtrace"]);
    let after_them = ["--after", "after/x0.memtrace", "after/x1.memtrace", "-o", "changed.html"];
    view(0, &[&files[..2], &after_them].concat());
    same("changed.html", &["ranks/1.memtrace", "after/x1.memtrace"]);
    // A page is made of what could be read.
    fs::write(after.join("torn.memtrace"), "").unwrap();
    for (arguments, code) in [
        (&["after"][..], 2),
        (&["ranks", "after"], 2),
        (&["after", "ranks", "--rank", "1"], 0),
        (&["after", "ranks/0.memtrace"], 2),
        (&["after", "--rank", "0"], 0),
    ] {
        view(code, &[arguments, &["-o", "made.html"]].concat());
        fs::remove_file(folder.path().join("made.html")).unwrap();
    }
}

/// The names of a folder's files.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn export_writes_a_file_for_each_recording_and_never_over_another() {
    let folder = tempfile::tempdir().unwrap();
    let [ranks, out] = ["ranks", "out"].map(|name| folder.path().join(name));
    four(&ranks);
    // A second name that becomes `3.json`, too.
    write(&ranks, "3.memtrace.gz", &Capture::default(), &own(4, 0));
    write(&ranks, "dump_rank5.pickle", &Pickle::default(), &own(5, 0));
    fs::write(ranks.join("torn.memtrace"), "").unwrap();
    let export = |code, more: &[&str]| ends(code, folder.path(), &[&["export", "ranks", "--to"], more].concat());
    let (_, error) = export(2, &["json", "-o", "out"]);
    assert_eq!(error.lines().filter(|line| line.starts_with("memtrace: wrote out/")).count(), 6, "{error}");
    assert!(
        error.ends_with("error: 1 of 7 files could not be read\n") && error.contains("ranks/torn.memtrace"),
        "{error}"
    );
    let all = ["0.json", "1.json", "2.json", "3-2.json", "3.json", "dump_rank5.pickle.json"];
    assert_eq!(names(&out), all);
    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    for (name, rank) in all.into_iter().zip([0, 1, 2, 4, 3, 5]) {
        assert!(text(name).contains(&format!("forward_{rank}")), "{name} is of rank {rank}");
    }
    // Again: those that are there stay.
    let before = all.map(text);
    export(2, &["json", "-o", "out"]);
    assert_eq!((names(&out).len(), all.map(text)), (12, before));
}

#[test]
fn export_of_several_needs_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("ranks");
    four(&ranks);
    fs::write(folder.path().join("file"), "").unwrap();
    for (arguments, part) in [
        (&[][..], "there are 4 recordings; give the name of a folder to -o"),
        (&["-o", "-"], "give the name of a folder to -o"),
        (&["-o", "file"], "give the name of a folder to -o"),
        (&["-o", "ranks"], "ranks has the recordings; give another folder to -o"),
        (&["-o", "./ranks/../ranks"], "has the recordings; give another folder to -o"),
    ] {
        let (out, error) = ends(2, folder.path(), &[&["export", "ranks", "--to", "pytorch"], arguments].concat());
        assert_eq!((&*out, error.contains(part)), ("", true), "{arguments:?}: {error}");
        assert_eq!(names(&ranks).len(), 4, "{arguments:?}");
    }
    ends(0, folder.path(), &["export", "ranks", "--to", "csv", "-o", "tables", "--label", "commit=1"]);
    assert_eq!(names(&folder.path().join("tables")).len(), 4);
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
    let commands: [&[&str]; 5] = [
        &["advise", "ranks"],
        &["leaks", "ranks"],
        &["temporaries", "ranks"],
        &["diff", "ranks", "ranks/a.memtrace"],
        &["timeline", "ranks"],
    ];
    for command in commands {
        let (out, error) = ends(2, folder.path(), command);
        let wanted = "error: ranks has 2 recordings, and this command reads one: name it; `cargo memtrace report ranks` \
                      shows them as ranks\n";
        assert_eq!((&*out, &*error), ("", wanted), "{command:?}");
    }
    assert!(ends(2, folder.path(), &["report", "ranks", "--at", "all"]).1.contains("by what is live at a moment"));
    let error = ends(2, folder.path(), &["report", "ranks", "--at", "step:7"]).1;
    assert!(
        error.contains("no rank can be compared: rank 0: cannot show that moment: no scope has the number 7"),
        "{error}"
    );
}
