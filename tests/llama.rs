//! The example llama, run small: what it prints and writes, held against theory.

use std::path::Path;
use std::process::Command;

use memtrace::{Device, analysis};

#[path = "../examples/llama/main.rs"]
mod example;

/// Set in the child process that runs the example: the command line.
const CHILD: &str = "MEMTRACE_TEST_LLAMA";
const TEST: &str = "each_token_adds_what_theory_says_and_variables_add_more";
/// Two layers, two heads of 64 values, one of them for the KV cache.
const SMALL: &str = "--layers 2 --hidden 128 --prompt 4 --tokens 12 --bug varmap";
const PER_TOKEN: i64 = 2 * 2 * 64 * 4;
const WEIGHTS: i64 = 4 * (2 * 32_000 * 128 + 128 + 2 * (3 * 128 * 128 + 3 * 128 * 352 + 2 * 128));

/// Standard output of the example with that command line; it must have ended well.
fn run(line: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(CHILD, line)
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("variables: decode of 12 tokens in "), "{err}");
    out.into_owned()
}

/// The numbers in the line that begins with `what`.
fn numbers(output: &str, what: &str) -> Vec<i64> {
    let line = output.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("{what}: {output}"));
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn each_token_adds_what_theory_says_and_variables_add_more() {
    if let Ok(line) = std::env::var(CHILD) {
        return example::run(line.split_whitespace().map(Into::into)).unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("files");
    let output = run(&format!("{SMALL} --out {}", dir.display()));
    // Found, in theory, the smallest, the largest.
    assert_eq!(numbers(&output, "Each token"), [PER_TOKEN; 4]);
    let weights = numbers(&output, "Weights");
    assert_eq!(weights[1], WEIGHTS);
    assert!((weights[0] - WEIGHTS).abs() < WEIGHTS / 1000, "{weights:?}");
    assert_eq!(numbers(&output, "RoPE tables")[1], 2 * 1024 * 32 * 4);
    let leak = numbers(&output, "  with variables");
    assert!(leak[2] > 2 * PER_TOKEN && leak[3] > leak[2], "what is kept grows with each token: {leak:?}");
    check_files(&dir);
}

fn check_files(dir: &Path) {
    for file in example::output::FILES {
        assert!(std::fs::metadata(dir.join(file)).unwrap().len() > 0, "{file}");
    }
    let snapshot = memtrace::read_capture(dir.join("recording.memtrace")).unwrap();
    let device = snapshot.device(Device::Cpu).unwrap();
    let peak = device.peak.total();
    for by in [analysis::by_line, analysis::by_function, analysis::by_operator, analysis::by_scope] {
        let breakdown = by(&snapshot, device);
        assert_eq!(breakdown.total, peak);
        assert_eq!(breakdown.rows.iter().map(|row| row.bytes).sum::<u64>(), peak);
    }
    let report = std::fs::read(dir.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["devices"][0]["peak"]["total_bytes"], peak);
    let in_attention = |row: &analysis::ScopeRow| row.path.ends_with("variables > decode > block[1] > attn[1]");
    assert!(analysis::scopes(&snapshot, device).iter().any(in_attention), "the model's spans are scopes");
}
