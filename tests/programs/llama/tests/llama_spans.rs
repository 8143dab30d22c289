//! candle's own Llama under memtrace's layer: coverage of its spans, and notes about disabled spans. Each test has its
//! own process, because installing a layer affects the whole process.
//!
//! `cargo test -p llama-spans -- --nocapture` prints the coverage.
#![expect(unsafe_code, reason = "an allocator that counts")]

#[path = "../../../support/child.rs"]
mod child;
#[path = "../../../support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use candle_transformers::models::resnet;
use child::in_child;
use memtrace::analysis::{Spanless, spanless};
use memtrace::attribute::Attribution;
use memtrace::export::{Export, Json};
use memtrace::snapshot::{Record, RecordKind};
use memtrace::{Session, Snapshot};
use support::records;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::prelude::*;

/// An allocator that counts all requested bytes.
struct Counting;

static REQUESTED: AtomicU64 = AtomicU64::new(0);

// SAFETY: forwards every call to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTED.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        REQUESTED.fetch_add(size as u64, Relaxed);
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOC: memtrace::Alloc<Counting> = memtrace::Alloc::new(Counting);

/// Runs `body` in a child and prints its output.
fn passes(body: fn()) {
    print!("{}", in_child(&[], body).out);
}

const LAYERS: usize = 4;

fn config() -> Config {
    Config {
        hidden_size: 128,
        intermediate_size: 344,
        vocab_size: 512,
        num_hidden_layers: LAYERS,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 64,
        tie_word_embeddings: false,
    }
}

/// Without `Var`s: trainable weights would keep every step's graph in the cache.
fn llama() -> Llama {
    Llama::load(VarBuilder::zeros(DType::F32, &Device::Cpu), &config()).unwrap()
}

fn cache() -> Cache {
    Cache::new(true, DType::F32, &config(), &Device::Cpu).unwrap()
}

/// Processes a prompt of 16 tokens, then four tokens one by one.
fn generate(model: &Llama, mut cache: Cache) {
    let mut position = 0;
    for tokens in [16, 1, 1, 1, 1] {
        let input = Tensor::zeros((1, tokens), DType::U32, &Device::Cpu).unwrap();
        model.forward(&input, position, &mut cache).unwrap();
        position += tokens;
    }
}

/// Records blocks of every size.
fn record_all() -> Session {
    memtrace::builder().min_size(0).start().unwrap()
}

fn recorded(work: impl FnOnce()) -> Snapshot {
    let session = record_all();
    work();
    session.snapshot()
}

fn install() {
    tracing_subscriber::registry().with(memtrace::layer()).init();
}

/// Bytes of allocations for which the predicate holds.
fn allocated(snapshot: &Snapshot, is_meant: impl Fn(&Record) -> bool) -> u64 {
    let allocs = records(snapshot).iter().filter(|record| record.kind == RecordKind::Alloc);
    allocs.filter(|record| is_meant(record)).map(|record| record.size).sum()
}

/// The part of the bytes in a span of the model; paths begin with the span's name.
fn share_in_spans(snapshot: &Snapshot, at_least: u64) -> f64 {
    const OUTERMOST: [&str; 4] = ["block[", "rms-norm[", "linear[", "attn"];
    let in_span = |record: &Record| {
        snapshot.context_names(record.context).first().is_some_and(|name| OUTERMOST.iter().any(|o| name.starts_with(o)))
    };
    let large = |record: &Record| record.size >= at_least;
    allocated(snapshot, |r| large(r) && in_span(r)) as f64 / allocated(snapshot, large) as f64
}

/// A matrix product on this thread alone, which allocates gemm's buffer of this thread.
fn product() {
    let matrix = Tensor::zeros((32, 32), DType::F32, &Device::Cpu).unwrap();
    matrix.matmul(&matrix).unwrap();
}

fn print_shares(pass: &str, snapshot: &Snapshot) -> (f64, f64) {
    let (all, large) = (share_in_spans(snapshot, 0), share_in_spans(snapshot, 1024));
    println!("{pass}: {:.2} % of bytes in the model's spans; of blocks >= 1 KiB {:.2} %", 100.0 * all, 100.0 * large);
    (all, large)
}

fn assert_silent(snapshot: &Snapshot) {
    assert_eq!(spanless(&Attribution::new(snapshot)), Spanless::default());
    assert!(!snapshot.report().to_string().contains("never became scopes"));
    assert!(json(snapshot)["health"]["spanless"]["note"].is_null());
}

fn json(snapshot: &Snapshot) -> serde_json::Value {
    let mut out = Vec::new();
    Json::default().write(snapshot, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Asserts that the report mentions missing spans and `cause`; most of the known missing bytes are in linear layers.
fn assert_said(snapshot: &Snapshot, cause: &str) {
    let Spanless { blocks, bytes } = spanless(&Attribution::new(snapshot));
    let all = allocated(snapshot, |_| true);
    println!("without a span: {bytes} B of {all} B, in {blocks} blocks ({cause})");
    assert!(bytes * 3 > all && bytes < all, "{bytes} of {all}");
    let report = snapshot.report().to_string();
    assert!(report.contains("never became scopes") && report.contains(cause), "{report}");
    let said = &json(snapshot)["health"]["spanless"];
    assert!(said["note"].as_str().unwrap().contains(cause) && said["bytes"] == bytes, "{said}");
}

#[test]
fn nearly_all_of_llamas_allocations_have_a_span_with_the_layers_number() {
    passes(|| {
        install();
        let (model, first, second) = (llama(), cache(), cache());
        print_shares("first pass", &recorded(|| generate(&model, first)));
        // Excludes lasting memory: rayon's threads, which are in no scope, and gemm's 1 MiB for each of them.
        rayon::broadcast(|_| product());
        let session = record_all();
        let before = REQUESTED.load(Relaxed);
        generate(&model, second);
        let requested = REQUESTED.load(Relaxed) - before;
        let snapshot = session.snapshot();
        let recorded = allocated(&snapshot, |_| true);
        println!("second pass: {requested} B requested, {recorded} B recorded");
        let (all, large) = print_shares("second pass", &snapshot);
        assert_eq!(recorded, requested);
        assert!(all >= 0.96 && large >= 0.96, "{all} of all, {large} of the large ones");
        for layer in 0..LAYERS {
            let path = format!("block[{layer}] > attn[{layer}] > linear[");
            assert!(allocated(&snapshot, |r| snapshot.context_path(r.context).starts_with(&path)) > 0, "{path}");
        }
        assert_silent(&snapshot);
    });
}

#[test]
fn a_model_loaded_before_the_layer_has_disabled_spans_and_the_report_says_so() {
    passes(|| {
        let model = llama();
        install();
        let snapshot = recorded(|| generate(&model, cache()));
        assert_said(&snapshot, "install memtrace::layer() before loading the model");
        assert_eq!(share_in_spans(&snapshot, 0), 0.0);
        // Loading alone causes no note, nor does a second model with working spans.
        assert_silent(&recorded(|| drop(llama())));
        let alive = llama();
        assert_silent(&recorded(|| generate(&alive, cache())));
    });
}

#[test]
fn a_span_of_the_program_does_not_hide_the_models_disabled_spans() {
    passes(|| {
        let model = llama();
        install();
        let snapshot = recorded(|| tracing::info_span!("request").in_scope(|| generate(&model, cache())));
        assert_said(&snapshot, "install memtrace::layer() before loading the model");
    });
}

#[test]
fn a_filter_on_the_whole_subscriber_is_distinguished_from_a_late_layer() {
    passes(|| {
        tracing_subscriber::registry().with(memtrace::layer()).with(LevelFilter::INFO).init();
        let model = llama();
        assert_said(&recorded(|| generate(&model, cache())), "level TRACE is switched off");
    });
}

#[test]
fn without_the_layer_the_report_does_not_mention_spans() {
    passes(|| {
        let model = llama();
        assert_silent(&recorded(|| generate(&model, cache())));
    });
}

#[test]
fn a_model_without_spans_misses_none() {
    passes(|| {
        install();
        let model = resnet::resnet18(10, VarBuilder::zeros(DType::F32, &Device::Cpu)).unwrap();
        let image = Tensor::zeros((1, 3, 32, 32), DType::F32, &Device::Cpu).unwrap();
        let snapshot = recorded(|| drop(model.forward(&image).unwrap()));
        assert!(allocated(&snapshot, |_| true) > 0);
        assert_silent(&snapshot);
    });
}
