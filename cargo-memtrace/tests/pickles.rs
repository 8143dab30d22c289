//! Every command on PyTorch's snapshots: a generated one, and genuine ones where MEMTRACE_PYTORCH_SNAPSHOTS names a folder of
//! them. Users of PyTorch read no word that is for programs of candle.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Advice and names that say nothing to a user of PyTorch.
const WORDS: [&str; 9] = [
    "candle",
    "rust",
    "line-tables",
    "debug =",
    "global_allocator",
    "as the driver",
    "??",
    "memtrace::",
    "cargo build",
];

/// The value as a pickle of protocol 2.
fn pickled(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'N'),
        Value::Bool(value) => out.push(if *value { 0x88 } else { 0x89 }),
        Value::Number(number) => {
            out.extend([0x8a, 8]);
            out.extend(number.as_i64().unwrap().to_le_bytes());
        }
        Value::String(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.bytes());
        }
        Value::Array(values) => {
            out.extend(b"](");
            values.iter().for_each(|value| pickled(value, out));
            out.push(b'e');
        }
        Value::Object(items) => {
            out.extend(b"}(");
            for (key, value) in items {
                pickled(&json!(key), out);
                pickled(value, out);
            }
            out.push(b'u');
        }
    }
}

fn frames(operator: &str, line: u32) -> Value {
    json!([
        { "name": format!("at::_ops::{operator}::call"), "filename": "??", "line": 0 },
        { "name": "forward", "filename": "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", "line": 125 },
        { "name": "forward", "filename": "/home/u/net/model.py", "line": line },
        { "name": "<module>", "filename": "/home/u/net/train.py", "line": 9 },
    ])
}

/// A linear layer, its backward pass in PyTorch's own thread, an optimizer's step, and a segment of a private pool.
fn snapshot() -> Value {
    let second = 1_700_000_000_000_000_u64;
    let entry = |action: &str, addr: u64, size: u64, at: u64, frames: Value| json!({ "action": action, "addr": addr, "size": size, "stream": 0, "time_us": second + at, "frames": frames });
    let block = |address: u64, size: u64, frames: Value| json!({ "address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames });
    let segment = |address: u64, pool: [u64; 2], active: Value, size: u64| {
        let rest = json!({ "address": address + size, "size": (2 << 20) - size, "requested_size": 0, "state": "inactive", "frames": [] });
        json!({
            "device": 0, "address": address, "total_size": 2 << 20, "allocated_size": size, "active_size": size, "stream": 0,
            "segment_type": "large", "segment_pool_id": pool, "blocks": [active, rest],
        })
    };
    let backward = json!([
        { "name": "at::_ops::mm::call", "filename": "??", "line": 0 },
        { "name": "torch::autograd::generated::AddmmBackward0::apply", "filename": "??", "line": 0 },
    ]);
    let (layer, graph) = (frames("addmm", 12), frames("relu", 13));
    let trace = json!([
        entry("segment_alloc", 0x1000_0000, 2 << 20, 1, layer.clone()),
        entry("alloc", 0x1000_0000, 1 << 20, 2, layer.clone()),
        entry("alloc", 0x2000_0000, 1 << 19, 3, graph.clone()),
        entry("alloc", 0x1010_0000, 1 << 18, 4, backward.clone()),
        entry("free_requested", 0x1010_0000, 1 << 18, 5, json!([])),
        entry("free_completed", 0x1010_0000, 1 << 18, 5, json!([])),
    ]);
    json!({
        "segments": [
            segment(0x1000_0000, [0, 0], block(0x1000_0000, 1 << 20, layer), 1 << 20),
            segment(0x2000_0000, [0, 1], block(0x2000_0000, 1 << 19, graph), 1 << 19),
        ],
        "device_traces": [trace],
        "allocator_settings": {},
        "external_annotations": [
            { "stage": "START", "name": "train", "device": 0, "time_us": second },
            { "stage": "END", "name": "train", "device": 0, "time_us": second + 9 },
        ],
    })
}

fn written(folder: &Path) -> PathBuf {
    written_as(folder, &snapshot())
}

fn written_as(folder: &Path, snapshot: &Value) -> PathBuf {
    let mut bytes = vec![0x80, 2];
    pickled(snapshot, &mut bytes);
    bytes.push(b'.');
    let path = folder.join("generated.pickle");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    let output = command.arg("memtrace").args(arguments).env_remove("COLUMNS").env("NO_COLOR", "1").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let found = WORDS.iter().find(|word| text.to_lowercase().contains(*word));
    assert_eq!(found, None, "{arguments:?}: {text}");
    text
}

fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&prints(&[arguments, &["--json"]].concat())).unwrap()
}

fn every_command_takes(pickle: &Path, folder: &Path) {
    let file = pickle.to_str().unwrap();
    let report = json_of(&["report", file, "--top", "1000"]);
    let rows = |key: &str| report["devices"][0][key]["rows"].as_array().unwrap();
    let sum = |key: &str| rows(key).iter().map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>();
    let data = memtrace_core::open(pickle).unwrap();
    let peak = memtrace_core::analysis::device_or_main(&data, None).unwrap().peak.total();
    assert_eq!([sum("peak_by_line"), sum("peak_by_function")], [peak; 2], "{file}");
    for command in ["report", "advise", "leaks", "temporaries"] {
        assert!(prints(&[command, file]).contains("cuda:0"), "{command} {file}");
    }
    let line = rows("peak_by_line").iter().find_map(|row| {
        row["label"].as_str()?.split_once(" (").filter(|(line, _)| line.ends_with(|c: char| c.is_ascii_digit()))
    });
    let (line, _) = line.unwrap();
    assert!(prints(&["explain", file, line]).contains("At the peak: "), "{line}");
    assert!(prints(&["diff", file, file]).contains("both times"), "{file}");
    assert!(prints(&["check", file, "--peak", "1 TiB"]).starts_with("ok: "), "{file}");
    assert_eq!(json_of(&["timeline", file])["version"], 1, "{file}");
    for to in ["flamegraph", "timeline"] {
        let out = folder.join(format!("{to}.svg"));
        prints(&[to, file, "-o", out.to_str().unwrap()]);
        let written = std::fs::read_to_string(&out).unwrap();
        assert!(written.contains("cuda:0") && !written.contains(" ??"), "{to} {file}");
    }
    for to in ["pytorch", "chrome", "pprof", "dhat", "folded", "json"] {
        let out = folder.join(to);
        prints(&["export", file, "--to", to, "-o", out.to_str().unwrap()]);
        assert!(std::fs::metadata(&out).unwrap().len() > 0, "{to} {file}");
    }
    assert!(memtrace_core::open(folder.join("pytorch")).is_ok(), "{file}");
}

#[test]
fn every_command_takes_a_generated_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    every_command_takes(&written(folder.path()), folder.path());
}

#[test]
fn every_command_takes_genuine_snapshots() {
    let Some(genuine) = std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS") else {
        return eprintln!("NOT RUN: MEMTRACE_PYTORCH_SNAPSHOTS names no folder");
    };
    let files = std::fs::read_dir(genuine).unwrap().map(|entry| entry.unwrap().path());
    let pickles: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "pickle")).collect();
    assert!(!pickles.is_empty());
    for pickle in pickles {
        every_command_takes(&pickle, tempfile::tempdir().unwrap().path());
    }
}

#[test]
fn about_nothing_there_is_no_answer_but_there_are_files() {
    let folder = tempfile::tempdir().unwrap();
    for traces in [json!([]), json!([[], []])] {
        let nothing = json!({ "segments": [], "device_traces": traces, "allocator_settings": {} });
        let pickle = written_as(folder.path(), &nothing);
        let file = pickle.to_str().unwrap();
        let questions: [&[&str]; 9] = [
            &["report", file],
            &["advise", file],
            &["leaks", file],
            &["temporaries", file],
            &["timeline", file],
            &["flamegraph", file],
            &["explain", file, "net.py:1"],
            &["diff", file, file],
            &["check", file, "--peak", "1 TiB"],
        ];
        for question in questions {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
            let output = command.arg("memtrace").args(question).output().unwrap();
            let expected = format!("error: nothing was recorded in {file}\n");
            assert_eq!(
                (String::from_utf8(output.stderr).unwrap(), output.status.code()),
                (expected, Some(2)),
                "{question:?}"
            );
            assert!(output.stdout.is_empty(), "{question:?}");
        }
        for to in ["json", "pytorch"] {
            prints(&["export", file, "--to", to, "-o", folder.path().join(to).to_str().unwrap()]);
        }
    }
}

#[test]
fn private_pools_have_segments_and_holes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let text = prints(&["report", written(folder.path()).to_str().unwrap()]);
    assert!(text.contains("as PyTorch's allocator reports"), "{text}");
    let row = |pool: &str| text.lines().find(|line| line.ends_with(pool)).unwrap_or_else(|| panic!("{pool}: {text}"));
    assert!(row("private (0, 1)").trim_start().starts_with("2.000 MiB  512.0 KiB"), "{text}");
    assert!(row("shared").trim_start().starts_with("2.000 MiB  1.000 MiB"), "{text}");
}

#[test]
fn without_a_log_a_report_has_no_times_and_says_what_is_older() {
    let folder = tempfile::tempdir().unwrap();
    let mut without_log = snapshot();
    without_log["device_traces"] = json!([[]]);
    without_log["external_annotations"] = json!([]);
    let pickle = written_as(folder.path(), &without_log);
    let file = pickle.to_str().unwrap();
    let text = prints(&["report", file]);
    assert!(text.contains("Peak 1.500 MiB on cuda:0.\n") && !text.contains(" after 0"), "{text}");
    assert!(text.contains("0 records, 2 blocks older than the log"), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    let output = command.args(["memtrace", "check", file, "--no-leak"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && said.contains("no scope was open on cuda:0"), "{said}");
}

#[test]
fn a_snapshot_is_held_against_a_recording_of_candle_in_text_markdown_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let pickle = written(folder.path());
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        let files = [&pickle, &recording];
        let output =
            command.args(["memtrace", "diff"]).args(files).args(["--threshold", "1"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    assert!(text.contains("on cuda:0 and ") && text.contains("Paired by operator: "), "{text}");
    assert!(text.contains("relu"), "{text}");
    let report: Value = serde_json::from_str(&run(&["--by", "operator", "--json"])).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let bytes = |key: &str| {
        let section = sections.iter().find(|section| section["key"] == key);
        let rows = section.map_or(&[][..], |section| section["rows"].as_array().unwrap());
        rows.iter().map(|row| row["before_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let peak = (1 << 20) + (1 << 19) + (1 << 18);
    assert_eq!(bytes("diff_by_operator") + bytes("unpaired_operators"), peak, "{report:#}");
    assert!(bytes("unpaired_operators") > 0, "{report:#}");
    let markdown = run(&["--by", "operator", "--md"]);
    assert!(markdown.contains("| Change | Before | After | What |") && markdown.contains("Not paired"), "{markdown}");
}
