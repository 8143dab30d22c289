//! Five candle programs with a planted memory bug: each assertion finds its bug, and passes 200 times without it.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Linear, Module, Optimizer, VarBuilder, VarMap, linear};
use memtrace::{Failure, NoGrowth, NoLeak, PeakLimit, Scales, Scaling};

const CLEAN_RUNS: usize = 200;

/// The failure of the program with the bug; the program without it must pass 200 times.
fn quiet_and_caught(
    clean: impl Fn() -> std::result::Result<(), Failure>,
    bug: std::result::Result<(), Failure>,
) -> String {
    for run in 0..CLEAN_RUNS {
        clean().unwrap_or_else(|failure| panic!("false alarm in run {run}: {failure}"));
    }
    let failure = bug.expect_err("the bug is caught");
    assert!(failure.is_violation(), "{failure}");
    failure.snapshot().map(std::fs::remove_file).transpose().unwrap();
    failure.to_string()
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// `file:line` of a comment in this file.
fn at(mark: &str) -> String {
    let line = include_str!("planted.rs").lines().position(|line| line.ends_with(mark)).unwrap() + 1;
    format!("tests/asserting/planted.rs:{line} (")
}

fn row(n: usize) -> Result<Tensor> {
    Tensor::full(n as f32, (1, 16), &Device::Cpu)
}

/// Keys and values of the tokens so far; a window keeps only the newest.
struct KvCache {
    rows: Option<Tensor>,
    window: Option<usize>,
}

impl KvCache {
    fn append(&mut self, token: &Tensor) -> Result<Tensor> {
        let all = match &self.rows {
            Some(rows) => Tensor::cat(&[rows, token], 0)?, // the cache grows
            None => token.copy()?,
        };
        let length = all.dim(0)?;
        let kept = match self.window {
            Some(window) if length > window => all.narrow(0, length - window, window)?.copy()?,
            _ => all,
        };
        self.rows = Some(kept.clone());
        Ok(kept)
    }
}

/// Measures twenty-four iterations of one token.
fn decode(window: Option<usize>) -> std::result::Result<(), Failure> {
    let mut cache = KvCache { rows: None, window };
    let mut token = 0;
    NoGrowth::new().iterations(24).run(|| {
        token += 1;
        cache.append(&row(token).unwrap()).unwrap()
    })
}

#[test]
fn a_kv_cache_that_grows_with_each_token() {
    let text = quiet_and_caught(|| decode(Some(8)), decode(None));
    // A row of 16 numbers of 4 bytes.
    says(&text, &["memory grows: +64 B with each run; 256 runs, the first 128 as warm-up", &at("// the cache grows")]);
}

fn parameters() -> (VarMap, Linear) {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
    let layer = linear(16, 16, vb).unwrap();
    (varmap, layer)
}

/// Ten training steps; keeps losses as tensors with their graphs, or as numbers.
fn train(keep_graphs: bool) -> std::result::Result<(), Failure> {
    let (varmap, layer) = parameters();
    let mut optimizer = AdamW::new_lr(varmap.all_vars(), 0.01).unwrap();
    let (mut graphs, mut numbers) = (Vec::with_capacity(256), Vec::with_capacity(256));
    NoLeak::new().warmup(3).runs(5).run(|| {
        let loss = layer.forward(&row(1).unwrap()).unwrap().sqr().unwrap().mean_all().unwrap(); // the graph
        optimizer.backward_step(&loss).unwrap();
        match keep_graphs {
            true => graphs.push(loss),
            false => numbers.push(loss.to_scalar::<f32>().unwrap()),
        }
    })
}

#[test]
fn losses_that_keep_their_graphs() {
    let text = quiet_and_caught(|| train(false), train(true));
    says(&text, &["leak of", "with each run", "runs after 3 warm-up runs", &at("// the graph")]);
}

/// A pass through this number of layers, with variables or plain tensors as weights.
fn infer(layers: usize, variables: bool) -> Tensor {
    let weight = Tensor::ones((64, 64), DType::F32, &Device::Cpu).unwrap();
    let weight = if variables { Var::from_tensor(&weight).unwrap().as_tensor().clone() } else { weight };
    let mut x = Tensor::ones((32, 64), DType::F32, &Device::Cpu).unwrap();
    for _ in 0..layers {
        x = x.matmul(&weight).unwrap(); // kept for a backward pass
    }
    x
}

/// Asserts that the peak of inference does not depend on the number of layers that share a weight.
fn inference_scales(variables: bool) -> std::result::Result<(), Failure> {
    Scales::new(Scaling::Constant).sizes([4, 8, 16]).run(|layers| infer(layers, variables))
}

#[test]
fn weights_of_a_varmap_at_inference() {
    let text = quiet_and_caught(|| inference_scales(false), inference_scales(true));
    says(&text, &["grows faster than Constant", "matmul", &at("// kept for a backward pass")]);
}

/// A cache of masks by length.
fn with_masks(lengths: usize) -> std::result::Result<(), Failure> {
    let mut masks = std::collections::HashMap::with_capacity(100);
    let mut request = 0;
    NoGrowth::new().iterations(30).run(|| {
        request += 1;
        let length = request % lengths;
        masks.entry(length).or_insert_with(|| row(length).unwrap()).sum_all().unwrap() // a mask
    })
}

#[test]
fn a_cache_that_fills_up_is_no_leak_and_one_that_does_not_is() {
    let text = quiet_and_caught(|| with_masks(8), with_masks(1000));
    says(&text, &["memory grows", &at("// a mask")]);
}

/// Scales an image of 64 KiB. The name `x` is bound three times: a shadowed tensor lives to the end unless it was
/// moved.
fn scale(shadowed: bool) -> std::result::Result<(), Failure> {
    let two = || -> Result<Tensor> {
        let x = Tensor::ones((128, 128), DType::F32, &Device::Cpu)?; // the first x
        if shadowed {
            let x = (&x * 2.0)?;
            let x = (&x + 1.0)?;
            return Ok(x);
        }
        let x = { x } * 2.0;
        x? + 1.0
    };
    PeakLimit::new().limit("129 KiB").run(two).map(drop)
}

#[test]
fn a_shadowed_tensor_that_stays() {
    let text = quiet_and_caught(|| scale(false), scale(true));
    says(&text, &["is over the limit of 129.0 KiB", &at("// the first x")]);
}
