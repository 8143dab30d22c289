//! The commands as a user runs them: what they print, where they write, and their exit codes.

mod fit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A small recording of one device with scopes, names and a temporary.
fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

fn memtrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).env_remove("COLUMNS").env("NO_COLOR", "1").output().unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let output = memtrace(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that must fail with this exit code.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = memtrace(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.starts_with("error: "), "{arguments:?}: {error}");
    error
}

#[test]
fn every_reading_command_prints_text_and_json_of_its_version() {
    let file = recording();
    let file = file.to_str().unwrap();
    for (command, version) in
        [("report", 2), ("advise", 2), ("leaks", 2), ("temporaries", 2), ("timeline", 1), ("replay", 1)]
    {
        assert!(prints(&[command, file]).contains("cpu"), "{command}");
        let json: serde_json::Value = serde_json::from_str(&prints(&[command, file, "--json"])).unwrap();
        assert_eq!(json["version"], version, "{command}");
    }
    let explained = prints(&["explain", file, "model.rs:7"]);
    assert!(explained.contains("src/model.rs:7 (Net::forward)"), "{explained}");
}

#[test]
fn the_reports_figures_are_those_of_the_recording() {
    let file = recording();
    let data = memtrace_core::open(&file).unwrap();
    let read = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&prints(&[&[args[0], file.to_str().unwrap()], &args[1..]].concat())).unwrap()
    };
    let json = read(&["report", "--by", "line", "--json"]);
    assert_eq!(json["sections"].as_array().unwrap().len(), 1);
    let table = &json["devices"][0]["peak_by_line"];
    let sum: u64 = table["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    let device = memtrace_core::analysis::device_or_main(&data, None).unwrap();
    assert_eq!(sum, device.peak.total());
    let whole = read(&["export", "--to", "json", "-o", "-"]);
    assert_eq!(*table, whole["devices"][0]["peak_by_line"], "both commands print one document");
    assert_eq!(json["devices"][0]["peak"], whole["devices"][0]["peak"]);
    assert!(json["devices"][0].get("peak_by_function").is_none() && json["devices"][0].get("scopes").is_none());
}

#[test]
fn a_recording_does_not_differ_from_itself_and_a_changed_peak_does() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert!(prints(&["diff", file, file]).contains("both times"));
    let changed = prints(&["diff", file, file, "--at", "end", "--at-after", "peak", "--threshold", "1", "--md"]);
    assert!(changed.starts_with("### memtrace") && changed.contains("| Change | Before | After |"), "{changed}");
}

#[test]
fn checks_end_with_0_or_1_and_say_why() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert!(prints(&["check", file, "--peak", "1 GiB"]).starts_with("ok: the peak of "));
    assert!(prints(&["check", file, "--baseline", file]).starts_with("ok: "));
    let over = fails(1, &["check", file, "--peak", "16 B"]);
    assert!(over.contains("is over the limit of 16 B by"), "{over}");
    assert!(fails(2, &["check", file]).contains("--peak"));
}

#[test]
fn a_line_and_its_recording_are_named_in_any_order_and_explained_in_the_reports_words() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert_eq!(prints(&["explain", file, "model.rs:7"]), prints(&["explain", "model.rs:7", file]));
    assert!(
        fails(2, &["explain", "model.rs:7", "gone.memtrace"])
            .contains("No such file: model.rs:7, gone.memtrace; only one of them can be the line")
    );
    assert!(fails(2, &["explain", file]).contains("name a line"));
}

#[test]
fn tables_that_are_asked_for_are_printed_or_said_to_be_empty() {
    let file = recording();
    let file = file.to_str().unwrap();
    let keys = ["line", "function", "operator", "module", "category", "scope", "parameter", "name", "age", "thread"];
    for key in keys {
        let text = prints(&["report", file, "--by", key]);
        assert!(text.contains(&format!("At the peak, by {key}\n")), "{key}: {text}");
    }
    assert!(prints(&["report", file, "--by", "line,scope"]).contains("forward"));
}

#[test]
fn a_report_that_is_read_as_a_recording_is_called_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording();
    for (name, text, what) in [
        ("a.txt", prints(&["report", file.to_str().unwrap()]), "a report as text"),
        ("b.txt", prints(&["report", file.to_str().unwrap(), "--color", "always"]), "a report as text"),
        ("c.json", prints(&["report", file.to_str().unwrap(), "--json"]), "JSON"),
        ("d.html", prints(&["view", file.to_str().unwrap(), "-o", "-"]), "a page"),
        ("e.svg", prints(&["flamegraph", file.to_str().unwrap(), "-o", "-"]), "XML"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let error = fails(2, &["report", path.to_str().unwrap()]);
        assert!(error.contains(&format!("it is {what}")), "{name}: {error}");
    }
}

#[test]
fn a_name_that_says_another_kind_is_refused_and_output_is_the_long_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run-1.memtrace");
    fs::copy(recording(), &file).unwrap();
    let (file, path) = (file.to_str().unwrap(), |name: &str| folder.path().join(name).to_str().unwrap().to_owned());
    for command in ["flamegraph", "timeline"] {
        assert!(fails(2, &[command, file, "-o", &path("x.png")]).contains("ends in .svg"), "{command}");
        prints(&[command, file, "--output", &path(&format!("{command}.svg"))]);
    }
    assert!(fails(2, &["view", file, "-o", &path("x.svg")]).contains("ends in .html"));
    prints(&["view", file, "--output", &path("x.htm.html")]);
    for (format, name) in [("pytorch", "run-1.pickle"), ("folded", "run-1.folded"), ("csv", "run-1.csv")] {
        prints(&["export", file, "--to", format]);
        assert!(folder.path().join(name).exists(), "{name}");
    }
    assert!(!folder.path().join("x.png").exists());
}

#[test]
fn bash_completes_the_commands_behind_cargo_and_leaves_cargos_own_to_cargo() {
    let script = prints(&["completions", "bash"]);
    let completed = |words: &str| {
        let test = format!(
            "{script}\n_cargo() {{ COMPREPLY=(\"of cargo: $*\"); }}\nCOMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
             _cargo_or_memtrace \"${{COMP_WORDS[0]}}\" \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\"; complete -p cargo"
        );
        let output = Command::new("bash").args(["--norc", "-c", &test]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(completed("cargo memtrace rep").starts_with("report replay\n"), "{}", completed("cargo memtrace rep"));
    assert!(completed("cargo memtrace report --by").contains("--by"), "{}", completed("cargo memtrace report --by"));
    assert!(completed("cargo buil").starts_with("of cargo: cargo buil"), "{}", completed("cargo buil"));
    assert!(completed("cargo buil").contains("-F _cargo_or_memtrace cargo"));
}

#[test]
fn files_are_written_whole_beside_the_recording_or_where_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run-1.memtrace");
    fs::copy(recording(), &file).unwrap();
    let file = file.to_str().unwrap();
    prints(&["flamegraph", file]);
    assert!(fs::read_to_string(folder.path().join("run-1.svg")).unwrap().contains("<svg"));
    for (format, name) in [
        ("pytorch", "a.pickle"),
        ("chrome", "a.trace.json"),
        ("folded", "a.folded"),
        ("pprof", "a.pb.gz"),
        ("dhat", "a.dhat.json"),
        ("json", "a.json"),
    ] {
        let out = folder.path().join(name);
        prints(&["export", file, "--to", format, "-o", out.to_str().unwrap()]);
        assert!(out.metadata().unwrap().len() > 0, "{format}");
    }
    for format in ["parquet", "csv"] {
        let runs = folder.path().join(format);
        prints(&["export", file, "--to", format, "-o", runs.to_str().unwrap(), "--label", "commit=1a2b"]);
        let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
        assert!(run.join(format!("labels.{format}")).metadata().unwrap().len() > 0, "{}", run.display());
    }
    let small = prints(&["export", file, "--to", "json", "--max-size", "8 KiB", "-o", "-"]);
    assert!(small.len() <= 8 << 10 && small.contains("left_out"), "{} bytes", small.len());
    let pickle = folder.path().join("a.pickle");
    assert!(prints(&["report", pickle.to_str().unwrap()]).contains("src/model.rs:7"), "its own pickle is read");
    assert!(prints(&["export", file, "--to", "folded", "-o", "-"]).contains(';'));
    assert!(prints(&["report", folder.path().to_str().unwrap()]).contains("2 ranks read."), "a folder's recordings");
}

#[test]
fn the_page_and_the_completions_know_every_command() {
    let (page, script) = (prints(&["man"]), prints(&["completions", "bash"]));
    for command in
        ["run", "test", "report", "explain", "diff", "flamegraph", "timeline", "export", "check", "baselines", "doctor"]
    {
        assert!(page.contains(command) && script.contains(command), "{command}");
    }
}

#[test]
fn doctor_says_what_of_a_program_can_be_recorded_and_why_not() {
    let itself = prints(&["doctor", env!("CARGO_BIN_EXE_cargo-memtrace")]);
    for expected in [
        "heap: recorded through the preload library",
        "CUDA memory: recorded through the preload library",
        "lines: yes",
        "physical memory: recorded",
    ] {
        assert!(itself.contains(expected), "{expected}: {itself}");
    }
    assert!(!itself.contains("linked against"), "{itself}");
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (&["-static"][..], "linked statically"),
        (&["-Dmalloc_here=mi_malloc"], "(mimalloc)"),
        (&["-Dmalloc_here=_rjem_malloc"], "(jemalloc)"),
        (&["-Dmalloc_here=malloc"], "(malloc)"),
    ] {
        let (source, program) = (folder.path().join("own.c"), folder.path().join("own"));
        fs::write(&source, "void *malloc_here(unsigned long n) { return 0; } int main(void) { return 0; }").unwrap();
        let mut compile = Command::new("cc");
        assert!(
            compile
                .args(["-w", "-fno-builtin"])
                .args(arguments)
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .status()
                .unwrap()
                .success()
        );
        let other = prints(&["doctor", program.to_str().unwrap()]);
        let line = other.lines().find(|line| line.starts_with("heap: not recorded: ")).unwrap_or_default();
        assert!(line.contains(why) && !other.contains("Cargo.toml"), "{why}: {other}");
    }
    let machine = prints(&["doctor"]);
    for expected in ["cargo: cargo 1.", "C compiler: ", "NVIDIA driver: ", "preload library: ", "simulated GPU: "] {
        assert!(machine.contains(expected), "{expected}: {machine}");
    }
    let is_emulated_only = machine.lines().any(|line| {
        line.starts_with("platform: ") && line.contains("CUDA memory are recorded") && line.contains("emulator only")
    });
    assert_eq!(is_emulated_only, cfg!(target_arch = "aarch64"), "{machine}");
    let text = folder.path().join("text");
    fs::write(&text, "no program").unwrap();
    assert!(fails(2, &["doctor", text.to_str().unwrap()]).contains("it is not an ELF program"));
    fails(2, &["doctor", folder.path().join("missing").to_str().unwrap()]);
}

#[test]
fn the_help_of_every_command_has_examples() {
    let commands = [
        "run",
        "test",
        "report",
        "advise",
        "explain",
        "leaks",
        "growth",
        "top",
        "temporaries",
        "fit",
        "replay",
        "diff",
        "flamegraph",
        "timeline",
        "export",
        "check",
        "doctor",
        "completions",
        "man",
    ];
    for command in commands {
        assert!(prints(&["help", command]).contains(&format!("  cargo memtrace {command}")), "{command}");
    }
    assert!(prints(&["--help"]).contains("Examples:"));
}

#[test]
fn view_writes_a_page_that_holds_the_reports_answer_and_compares_two_recordings() {
    let (file, folder) = (recording(), tempfile::tempdir().unwrap());
    let (file, page) = (file.to_str().unwrap(), folder.path().join("page.html"));
    prints(&["view", file, "-o", page.to_str().unwrap(), "--no-open"]);
    let alone = fs::read_to_string(&page).unwrap();
    let answer = prints(&["report", file]).lines().nth(1).unwrap().to_owned();
    assert!(answer.starts_with("Peak ") && alone.contains(&answer), "{answer}");
    assert!(alone.contains("\"changes\":null"));
    let compared = prints(&["view", file, file, "-o", "-"]);
    assert!(compared.contains("memtrace: difference of"));
}
