//! The standard output, when it is full: an error instead of success, and no panic.

use std::fs::File;

use super::{Disk, text};

/// Commands that print, with a recording `a.memtrace` and another, `b.memtrace`.
const PRINTING: [&str; 35] = [
    "--help",
    "--version",
    "help report",
    "report --help",
    "report a.memtrace",
    "report a.memtrace --json",
    "report ranks",
    "advise a.memtrace",
    "explain a.memtrace relu",
    "leaks a.memtrace",
    "growth a.memtrace b.memtrace",
    "temporaries a.memtrace",
    "diff a.memtrace b.memtrace",
    "diff a.memtrace b.memtrace --json",
    "timeline a.memtrace",
    "timeline a.memtrace --json",
    "timeline a.memtrace --by line",
    "top a.memtrace",
    "view a.memtrace -o -",
    "export a.memtrace --to pytorch -o -",
    "export a.memtrace --to chrome -o -",
    "export a.memtrace --to layout -o -",
    "export a.memtrace --to folded -o -",
    "export a.memtrace --to pprof -o -",
    "export a.memtrace --to dhat -o -",
    "export a.memtrace --to json -o -",
    "flamegraph a.memtrace -o -",
    "timeline a.memtrace -o -",
    "check a.memtrace --peak 1TiB",
    "replay a.memtrace --memory 1TiB",
    "baselines review",
    "baselines update",
    "doctor",
    "completions bash",
    "man",
];

#[test]
fn a_full_standard_output_is_an_error() {
    let disk = Disk::with_copies(&["a.memtrace", "b.memtrace", "ranks/0.memtrace", "ranks/1.memtrace"]);
    let mut wrong = Vec::new();
    for words in PRINTING {
        let mut command = disk.tool(&words.split(' ').collect::<Vec<_>>());
        let printed = command.output().unwrap();
        if printed.stdout.is_empty() {
            wrong.push(format!("{words} prints nothing: {}", text(&printed.stderr)));
        }
        let full = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        let errors = text(&full.stderr);
        let is_said = errors.contains("standard output") && errors.contains("No space left");
        if full.status.code() != Some(2) || !is_said || errors.contains("panicked") {
            wrong.push(format!("{words}: {}: {errors}", full.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
