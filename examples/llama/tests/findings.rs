//! Ways to waste memory with candle 0.11.1. For each, memtrace's report is compared with that of the same work without
//! the waste. docs/findings.md explains them; this command prints the reports:
//!
//! `cargo test -p llama-example --test findings -- --nocapture --test-threads 1`

use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};
use memtrace::analysis::Key;
use memtrace::snapshot::{Block, DeviceSnapshot};
use memtrace::{DeviceView, Snapshot, analysis, attribute, scope};

#[path = "followed/frugal.rs"]
mod frugal;
#[path = "../generate.rs"]
#[expect(dead_code, reason = "the example looks at more")]
mod generate;
#[path = "../model.rs"]
#[expect(dead_code, reason = "the example also reads files")]
mod llama;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Only one test runs at a time, because a recording also contains allocations of other threads.
static TESTS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program, takes a snapshot while the program's result is alive, and prints the report.
fn recorded<T>(title: &str, program: impl FnOnce() -> Result<T>) -> (Snapshot, T) {
    let session = memtrace::start().unwrap();
    let kept = program().unwrap();
    let snapshot = session.snapshot();
    println!("\n=== {title} ===\n{}", snapshot.report());
    (snapshot, kept)
}

fn cpu(snapshot: &Snapshot) -> &DeviceSnapshot {
    snapshot.device(memtrace::Device::Cpu).unwrap()
}

/// The kinds of the report's findings.
fn findings(snapshot: &Snapshot) -> Vec<&'static str> {
    memtrace::report::findings(&DeviceView::of(snapshot, cpu(snapshot)))
        .iter()
        .map(|finding| finding.kind.word())
        .collect()
}

// ---- gradients keep the graph ----

const WIDTH: usize = 512;
/// A batch of values as wide as a layer, or a layer's weights.
const SQUARE: u64 = (WIDTH * WIDTH * 4) as u64;

/// Three layers with a relu between them.
struct Mlp {
    weights: Vec<Var>,
}

impl Mlp {
    fn new() -> Result<Self> {
        let weights = (0..3).map(|_| Var::randn(0f32, 1., (WIDTH, WIDTH), &Device::Cpu)).collect::<Result<_>>()?;
        Ok(Self { weights })
    }

    fn gradients(&self) -> Result<GradStore> {
        let x = Tensor::ones((WIDTH, WIDTH), DType::F32, &Device::Cpu)?;
        let loss = scope("forward", || {
            let x = x.matmul(&self.weights[0])?.relu()?;
            let x = x.matmul(&self.weights[1])?.relu()?;
            x.matmul(&self.weights[2])?.sum_all()
        })?;
        scope("backward", || loss.backward())
    }
}

#[test]
fn gradients_keep_the_graph_until_they_are_detached() {
    let _alone = alone();
    let mlp = Mlp::new().unwrap();
    let (kept, gradients) = recorded("gradients as they are", || mlp.gradients());
    drop(gradients);
    let (cured, gradients) = recorded("gradients detached", || {
        let gradients = mlp.gradients()?;
        Ok(mlp.weights.iter().filter_map(|var| Some(gradients.get(var)?.detach())).collect::<Vec<_>>())
    });
    assert_eq!(gradients.len(), 3);
    // The loss is dropped, but the gradient of the last layer's weights keeps that layer's input: two products and
    // their relu.
    let is_forward = |snapshot: &Snapshot, block: &Block| snapshot.context_path(block.context) == "forward";
    // Only whole tensors count, because rayon allocates memory of its own on first use.
    let tensors = |snapshot: &Snapshot| {
        let live = cpu(snapshot).live.iter().filter(|block| block.size == SQUARE && is_forward(snapshot, block));
        live.map(|block| block.size).sum::<u64>()
    };
    assert_eq!([tensors(&kept), tensors(&cured)], [4 * SQUARE, 0]);
    let lines = |snapshot: &Snapshot| {
        let rows = DeviceView::of(snapshot, cpu(snapshot)).at_end().by(Key::Line).into_owned().rows;
        rows.iter().filter(|row| row.label.contains("(gradients::") && row.bytes == 2 * SQUARE).count()
    };
    assert_eq!([lines(&kept), lines(&cured)], [2, 0], "the table names the lines of both layers");
    assert_eq!(
        [findings(&kept), findings(&cured)],
        [vec!["kept_graph"], vec![]],
        "and a graph is no shadowed variable"
    );
}

// ---- losses that are kept ----

const STEPS: usize = 8;

/// Trains, and keeps the result of `keep` for each step's loss.
fn losses<T>(mlp: &Mlp, keep: impl Fn(Tensor) -> Result<T>) -> Result<Vec<T>> {
    let x = Tensor::ones((WIDTH, WIDTH), DType::F32, &Device::Cpu)?;
    let step = |_| {
        scope("step", || {
            let loss = x.matmul(&mlp.weights[0])?.relu()?.matmul(&mlp.weights[1])?.mean_all()?;
            let gradients = loss.backward()?;
            for var in &mlp.weights[..2] {
                let gradient = gradients.get(var).expect("both have one").detach();
                var.set(&(var.as_detached_tensor() - (gradient * 1e-3)?)?)?;
            }
            keep(loss)
        })
    };
    (0..STEPS).map(step).collect()
}

#[test]
fn kept_losses_keep_the_graph_of_each_step() {
    let _alone = alone();
    let mlp = Mlp::new().unwrap();
    let (kept, losses_kept) = recorded("losses that are tensors", || losses(&mlp, Ok));
    let tensors = cpu(&kept).live.iter().filter(|block| block.size == SQUARE).count();
    assert!(tensors >= 2 * STEPS, "of each step two products or more: {tensors}");
    assert_eq!(findings(&kept), ["growth"]);
    assert!(kept.report().to_string().contains("`detach()` a tensor that is kept"));
    drop(losses_kept);
    let (cured, _losses) = recorded("losses that are numbers", || losses(&mlp, |loss| loss.to_scalar::<f32>()));
    assert_eq!(findings(&cured), [] as [&str; 0]);
}

// ---- cumsum ----

#[test]
fn cumsum_makes_a_square_matrix() {
    let _alone = alone();
    const ROWS: usize = 64;
    const LENGTH: usize = 2048;
    let x = Tensor::ones((ROWS, LENGTH), DType::F32, &Device::Cpu).unwrap();
    let (kept, at_once) = recorded("cumsum", || x.cumsum(1));
    let (cured, in_parts) = recorded("cumsum in parts", || {
        const PART: usize = 64;
        let mut so_far = Tensor::zeros((ROWS, 1), DType::F32, &Device::Cpu)?;
        let part = |start| {
            let sums = x.narrow(1, start, PART)?.cumsum(1)?.broadcast_add(&so_far)?;
            so_far = sums.narrow(1, PART - 1, 1)?;
            Ok(sums)
        };
        let parts = (0..LENGTH).step_by(PART).map(part).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 1)
    });
    let values = |sums: &Tensor| sums.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(values(&at_once), values(&in_parts));
    let matrix = (LENGTH * LENGTH * 4) as u64;
    let peak = |snapshot: &Snapshot| cpu(snapshot).peak.bytes - cpu(snapshot).peak.not_recorded;
    assert!(peak(&kept) >= matrix && peak(&cured) < matrix / 4, "{} {}", peak(&kept), peak(&cured));
    // The parts are collected, so they may count as growth if the buffers of the product are small.
    assert_eq!((findings(&kept), findings(&cured).contains(&"square")), (vec!["square"], false));
}

// ---- AdamW's step ----

/// The largest transient of two steps, in sizes of the largest parameter; the findings; and the first parameter.
fn two_steps(
    title: &str,
    step: &mut dyn FnMut(&GradStore) -> Result<()>,
    var: &Var,
    by: &VarMap,
) -> (f64, Vec<&'static str>, Vec<f32>) {
    let (snapshot, ()) = recorded(title, || {
        for _ in 0..2 {
            let loss = by.all_vars().iter().try_fold(Tensor::zeros((), DType::F32, &Device::Cpu)?, |sum, var| {
                sum + var.as_tensor().t()?.sqr()?.sum_all()?
            })?;
            let gradients = loss.backward()?;
            drop(loss);
            scope("step", || step(&gradients))?;
        }
        Ok(())
    });
    let scopes = analysis::scopes(&DeviceView::of(&snapshot, cpu(&snapshot)));
    let step = scopes.iter().find(|row| row.path == "step").unwrap();
    (step.own_peak as f64 / SQUARE as f64, findings(&snapshot), var.flatten_all().unwrap().to_vec1().unwrap())
}

#[test]
fn a_step_of_adamw_takes_14_times_the_largest_parameter() {
    let _alone = alone();
    let transient = |frugal: bool| {
        let varmap = VarMap::new();
        let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
        let half = candle_nn::Init::Const(0.5);
        let large = vb.get_with_hints((WIDTH, WIDTH), "large", half).unwrap();
        vb.get_with_hints((8, 8), "small", half).unwrap();
        assert_eq!(large.elem_count() as u64 * 4, SQUARE);
        let var = varmap.data().lock().unwrap()["large"].clone();
        if frugal {
            let mut optimizer = frugal::Frugal::new(varmap.all_vars()).unwrap();
            return two_steps("AdamW on detached tensors", &mut |gradients| optimizer.step(gradients), &var, &varmap);
        }
        let mut optimizer = AdamW::new_lr(varmap.all_vars(), 1e-3).unwrap();
        two_steps("AdamW::step", &mut |gradients| optimizer.step(gradients), &var, &varmap)
    };
    let (candles, finding, expected) = transient(false);
    let (frugal, no_finding, found) = transient(true);
    assert_eq!([finding, no_finding], [vec!["optimizer_transient"], vec![]]);
    assert!((13.99..14.01).contains(&candles), "{candles}");
    assert!(frugal < 4.01, "{frugal}");
    let differ = expected.iter().zip(&found).filter(|(a, b)| (*a - *b).abs() > 1e-6);
    assert_eq!(differ.count(), 0, "both make the same steps");
}

// ---- weights that are variables ----

const LAYERS: usize = 2;
// Enough tokens that the caches hold well over a tenth of the peak, whatever the buffers of matrix kernels take.
const TOKENS: usize = 64;

/// Reads four tokens, generates `TOKENS`, and keeps model and cache.
fn generate(weights: VarBuilder<'_>) -> Result<generate::Generation> {
    let config = candle_transformers::models::llama::Config { vocab_size: 256, ..llama::small(LAYERS, 128) };
    let mut model = generate::Generation::load(|| Ok(weights), &config, DType::F32, &Device::Cpu)?;
    let (first, _) = model.prefill(&[1, 2, 3, 4])?;
    model.decode(first, 4, TOKENS)?;
    Ok(model)
}

/// The number and bytes of live blocks that an operation created by concatenation.
fn joined(snapshot: &Snapshot) -> (usize, u64) {
    let attribution = attribute::Attribution::new(snapshot);
    let by_cat = |stack| attribute::operator(&attribution, stack).is_some_and(|operator| operator.root == "cat");
    let sizes = cpu(snapshot).live.iter().filter(|block| by_cat(block.stack)).map(|block| block.size);
    (sizes.clone().count(), sizes.sum())
}

#[test]
fn a_kv_cache_of_variables_keeps_each_earlier_one() {
    let _alone = alone();
    let (plain, model) =
        recorded("weights that are no variables", || generate(VarBuilder::zeros(DType::F32, &Device::Cpu)));
    drop(model);
    let varmap = VarMap::new();
    let weights = || VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
    let (leaking, _model) = recorded("weights of a VarMap", || generate(weights()));
    // A key and a value per layer, of 64 values per token.
    let cache = |tokens: usize| (64 * 4 * tokens) as u64;
    assert_eq!(joined(&plain), (2 * LAYERS, 2 * LAYERS as u64 * cache(4 + TOKENS)));
    // The values' caches of all lengths. The keys pass through an operation without a backward pass.
    let lengths: u64 = (1..=TOKENS).map(|made| cache(4 + made)).sum();
    let layers = LAYERS as u64;
    assert_eq!(joined(&leaking), (LAYERS * (TOKENS + 1), layers * (cache(4 + TOKENS) + lengths)));
    let at_peak = DeviceView::of(&leaking, cpu(&leaking)).by(Key::Operator).clone();
    let cat = at_peak.rows.iter().find(|row| row.label.starts_with("cat/")).unwrap();
    assert!(cat.count > Some((LAYERS * TOKENS) as u64), "the table by operator names it: {at_peak:?}");
    assert_eq!(findings(&plain), [] as [&str; 0]);
    assert_eq!(findings(&leaking), ["kept_by_variables", "growth"]);
}
