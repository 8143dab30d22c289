//! Wrong input of every command: a clear error on the standard error, exit code 2, and no file that was not there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

/// Commands that read one recording: the words before the file and after it.
const READING: [(&[&str], &[&str]); 22] = [
    (&["report"], &[]),
    (&["report"], &["--json"]),
    (&["advise"], &[]),
    (&["explain"], &["model.rs:7"]),
    (&["leaks"], &[]),
    (&["growth"], &[]),
    (&["top"], &[]),
    (&["temporaries"], &[]),
    (&["plan"], &["1GiB"]),
    (&["replay"], &[]),
    (&["timeline"], &[]),
    (&["timeline", "--by", "line"], &[]),
    (&["timeline", "-o", "out.svg"], &[]),
    (&["flamegraph", "-o", "out.svg"], &[]),
    (&["flamegraph", "-o", "out.svg", "whole.memtrace", "--diff"], &[]),
    (&["export", "--to", "pytorch", "-o", "out.pickle"], &[]),
    (&["export", "--to", "json", "-o", "-"], &[]),
    (&["check", "--peak", "1 GiB"], &[]),
    (&["check", "--no-leak", "--baseline", "whole.memtrace"], &[]),
    (&["diff", "whole.memtrace"], &[]),
    (&["diff"], &["whole.memtrace"]),
    (&["fit", "--recording"], &[]),
];

struct Here {
    folder: tempfile::TempDir,
}

impl Here {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = fs::read(recording()).unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        put("whole.memtrace", &bytes);
        put("empty.memtrace", &[]);
        put("torn.memtrace", &bytes[..bytes.len().min(40)]);
        put("text.memtrace", b"no recording");
        let mut newer = bytes.clone();
        newer[8] = 200;
        put("newer.memtrace", &newer);
        put("bad.pickle", b"cos\nsystem\n(S'true'\ntR.");
        put("bad.memtrace.gz", b"\x1f\x8b\x08not gzip");
        fs::create_dir(folder.path().join("folder")).unwrap();
        Self { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.arg("memtrace").args(arguments).current_dir(&self.folder).env_remove("COLUMNS");
        command.env("CARGO_TARGET_DIR", self.folder.path().join("target")).output().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The message of a command that must end with 2 and leave the folder as it was.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let before = self.files();
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.starts_with("error: "), "{arguments:?}: {error}");
        assert!(!error.contains("panicked") && error.len() < 2000, "{arguments:?}: {error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?} prints nothing half");
        assert_eq!(self.files(), before, "{arguments:?} left a file");
        error
    }
}

#[test]
fn input_that_is_missing_torn_newer_or_something_else_is_named_by_every_reading_command() {
    let here = Here::new();
    let inputs = [
        ("missing.memtrace", "No such file"),
        ("folder", "no recording"),
        ("empty.memtrace", "it does not begin like one; captures are written by"),
        ("torn.memtrace", "it ends before its first commit"),
        ("text.memtrace", "it does not begin like one; captures are written by"),
        ("newer.memtrace", "version 200"),
        ("bad.pickle", "PyTorch memory snapshots are written by"),
        ("bad.memtrace.gz", ""),
    ];
    for (words, rest) in READING {
        for (input, why) in inputs {
            let error = here.fails(&[words, &[input], rest].concat());
            assert!(error.contains(input) && error.contains(why), "{words:?} {input}: {error}");
        }
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_before_anything_is_lost() {
    let here = Here::new();
    fs::write(here.folder.path().join("kept.svg"), "kept").unwrap();
    for words in [
        &["flamegraph"][..],
        &["timeline"],
        &["timeline", "--by", "operator"],
        &["export", "--to", "pytorch"],
        &["export", "--to", "json"],
    ] {
        for out in ["whole.memtrace/below", "folder"] {
            let error = here.fails(&[words, &["whole.memtrace", "-o", out]].concat());
            assert!(error.contains(out.split('/').next().unwrap()), "{words:?}: {error}");
        }
    }
    assert!(here.fails(&["run", "--exec", "true", "--out", "whole.memtrace"]).contains("exists"));
    let locked = here.folder.path().join("folder");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    // The superuser may write everywhere.
    if fs::write(locked.join("x"), "").is_err() {
        here.fails(&["flamegraph", "whole.memtrace", "-o", "folder/out.svg"]);
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unknown_words_and_flags_are_errors_and_a_near_word_is_suggested() {
    let here = Here::new();
    for (words, _) in READING {
        here.fails(&[words, &["whole.memtrace", "--sideways"]].concat());
    }
    for command in ["run", "test", "baselines", "doctor", "completions", "man"] {
        here.fails(&[command, "--sideways"]);
    }
    for (words, tip) in [
        (&["reprot"][..], "report"),
        (&["report", "--by", "lines"], "line"),
        (&["report", "--jsn"], "--json"),
        (&["timeline", "--by", "operater"], "operator"),
        (&["export", "--to", "pytorh", "-o", "x"], "pytorch"),
        (&["baselines", "reveiw"], "review"),
        (&["completions", "bahs"], "bash"),
    ] {
        let error = here.fails(words);
        assert!(error.contains("similar") && error.contains(tip), "{words:?}: {error}");
    }
}

#[test]
fn wrong_values_say_what_is_possible() {
    let here = Here::new();
    for (words, says) in [
        (&["report", "whole.memtrace", "--at", "middle"][..], "step:3"),
        (&["report", "whole.memtrace", "--at", "scope:none"], "none"),
        (&["report", "whole.memtrace", "--at", "step:99"], "99"),
        (&["report", "whole.memtrace", "--device", "gpu"], "cuda:0"),
        (&["report", "whole.memtrace", "--from", "end", "--to", "peak"], ""),
        (&["report", "whole.memtrace", "--binary", "gone"], "gone"),
        (&["report", "whole.memtrace", "--debug-dir", "gone"], "gone"),
        (&["report", "whole.memtrace", "--top", "many"], "many"),
        (&["explain", "whole.memtrace", "no_such_line"], "report --by"),
        (&["explain"], "SUBJECT"),
        (&["diff", "whole.memtrace"], "AFTER"),
        (&["diff", "whole.memtrace", "whole.memtrace", "--by", "colour"], "model-line"),
        (&["timeline", "whole.memtrace", "--by", "age"], "possible values: line"),
        (&["diff", "whole.memtrace", "whole.memtrace", "--device", "cuda:3"], "cuda:3"),
        (&["diff", "whole.memtrace", "whole.memtrace", "--md", "--json"], "--json"),
        (&["check", "whole.memtrace"], "--peak"),
        (&["check", "whole.memtrace", "--peak", "much"], "much"),
        (&["check", "whole.memtrace", "--peak", "1 GiB", "--tolerance", "x"], "1%"),
        (&["export", "whole.memtrace"], "--to"),
        (&["export", "whole.memtrace", "--to", "dhat", "--max-size", "1MiB", "-o", "-"], "json"),
        (&["export", "whole.memtrace", "--to", "csv", "-o", "-"], "folder"),
        (&["report"], "cargo memtrace run"),
    ] {
        let error = here.fails(words);
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn tables_fit_80_and_160_columns_and_colours_are_only_where_they_are_wanted() {
    let here = Here::new();
    for columns in [80, 160] {
        for words in [&["report"][..], &["leaks"], &["temporaries"], &["timeline"], &["timeline", "--by", "line"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
            command.arg("memtrace").args(words).arg("whole.memtrace").current_dir(&here.folder);
            let output = command.env("COLUMNS", columns.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{words:?} at {columns}: {widest}\n{text}");
        }
    }
    let has_color = |arguments: &[&str]| {
        let output = here.run(&[&["report", "whole.memtrace"], arguments].concat());
        output.stdout.contains(&0x1b)
    };
    assert!(has_color(&["--color", "always"]) && !has_color(&["--color", "never"]) && !has_color(&[]));
}
