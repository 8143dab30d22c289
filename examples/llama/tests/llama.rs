//! The example llama in a small size: its output and files agree with theory.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use candle_core::{DType, Device::Cpu, Tensor};
use memtrace::analysis::Key;
use memtrace::{Device, DeviceView, analysis};

#[path = "../main.rs"]
mod example;
#[path = "../../../tests/support/pytorchs_tools.rs"]
mod pytorchs_tools;

/// The example's command line. It is set in the child process that runs the example.
const CHILD: &str = "MEMTRACE_TEST_LLAMA";
/// Two layers, two heads of 64 values, one of them for the KV cache.
const SMALL: &str = "--layers 2 --hidden 128 --prompt 4 --tokens 12 --bug varmap";
const PER_TOKEN: i64 = 2 * 2 * 64 * 4;
const WEIGHTS: i64 = 4 * (2 * 32_000 * 128 + 128 + 2 * (3 * 128 * 128 + 3 * 128 * 352 + 2 * 128));

/// The child's body: runs the example with its command line. Without a command line, this is not the child.
#[test]
fn child() {
    if let Ok(line) = std::env::var(CHILD) {
        example::run(line.split_whitespace().map(Into::into)).unwrap();
    }
}

/// Standard output of the example with this command line; it must succeed.
fn run(line: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, line)
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("plain tensors: decode of "), "{err}");
    out.into_owned()
}

/// The numbers in the line that begins with `what`.
fn numbers(output: &str, what: &str) -> Vec<i64> {
    let line = output.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("{what}: {output}"));
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn each_token_adds_the_theoretical_bytes_and_variables_add_more() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("files");
    let output = run(&format!("{SMALL} --out {}", dir.display()));
    // The measured, theoretical, smallest and largest number.
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
    for (file, _) in example::output::FILES {
        assert!(std::fs::metadata(dir.join(file)).unwrap().len() > 0, "{file}");
    }
    let snapshot = memtrace::open(dir.join("recording.memtrace")).unwrap();
    let device = snapshot.device(Device::Cpu).unwrap();
    let peak = device.peak.total();
    for by in [Key::Line, Key::Function, Key::Operator, Key::Scope] {
        let breakdown = DeviceView::of(&snapshot, device).by(by).clone();
        assert_eq!(breakdown.total, peak);
        assert_eq!(breakdown.rows.iter().map(|row| row.bytes).sum::<u64>(), peak);
    }
    let report = std::fs::read(dir.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["devices"][0]["peak"]["total_bytes"], peak);
    pytorchs_tools::check(&snapshot, "decode", dir);
    let in_attention = |row: &analysis::ScopeRow| row.path.ends_with("variables > decode > block[1] > attn[1]");
    assert!(
        analysis::scopes(&DeviceView::of(&snapshot, device)).iter().any(in_attention),
        "the model's spans are scopes"
    );
}

/// Writes random weights and their configuration: a vocabulary of 64, one layer and two heads of 64 values.
fn write_weights(dir: &Path) {
    let matrices = [
        ("model.embed_tokens", 64, 128),
        ("model.layers.0.self_attn.q_proj", 128, 128),
        ("model.layers.0.self_attn.k_proj", 64, 128),
        ("model.layers.0.self_attn.v_proj", 64, 128),
        ("model.layers.0.self_attn.o_proj", 128, 128),
        ("model.layers.0.mlp.gate_proj", 256, 128),
        ("model.layers.0.mlp.up_proj", 256, 128),
        ("model.layers.0.mlp.down_proj", 128, 256),
    ];
    let norms = ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"];
    let matrices = matrices.map(|(name, rows, columns)| (name, Tensor::rand(-1f32, 1., (rows, columns), &Cpu)));
    let norms = norms.map(|name| (name, Tensor::ones(128, DType::F32, &Cpu)));
    let named = |(name, tensor): (&str, candle_core::Result<Tensor>)| (format!("{name}.weight"), tensor.unwrap());
    let weights: HashMap<String, Tensor> = matrices.into_iter().chain(norms).map(named).collect();
    candle_core::safetensors::save(&weights, dir.join("model.safetensors")).unwrap();
    let config = r#"{ "hidden_size": 128, "intermediate_size": 256, "vocab_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 32,
        "tie_word_embeddings": true }"#;
    std::fs::write(dir.join("config.json"), config).unwrap();
}

#[test]
fn weights_from_files_are_counted_in_the_type_of_their_use() {
    let out = tempfile::tempdir().unwrap();
    write_weights(out.path());
    let dir = out.path().display();
    for (dtype, size) in [("f32", 4), ("f16", 2)] {
        let files = format!("--weights {dir}/model.safetensors --config {dir}/config.json --out {dir}/{dtype}");
        let output = run(&format!("{files} --dtype {dtype} --prompt 3 --tokens 6"));
        assert_eq!(numbers(&output, "Each token"), [2 * 64 * size; 4], "{dtype}");
        let weights = numbers(&output, "Weights");
        let theory = size * (64 * 128 + 128 + 3 * 128 * 128 + 3 * 128 * 256 + 2 * 128);
        assert_eq!(weights[1], theory, "{dtype}");
        assert!((0..20_000).contains(&(weights[0] - theory)), "{dtype}: {weights:?}");
        assert_eq!(numbers(&output, "RoPE tables")[1], 32 * 64 * size, "{dtype}");
    }
}
