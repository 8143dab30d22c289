//! Accuracy of separating operator calls by stacks. Each call has a scope of its own as the truth, and the scopes'
//! marks are removed before the analysis, so that they cannot help.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use candle_core::{D, DType, Device, IndexOp, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use memtrace::snapshot::RecordKind;
use memtrace::{DeviceView, SnapshotData, analysis, attribute, scope};

use crate::support::alone;

const THRESHOLD: u64 = 256;

/// Scopes with running numbers: `relu #17`.
#[derive(Default)]
struct Numbered(Cell<usize>);

impl Numbered {
    fn call<T>(&self, name: &str, call: impl FnOnce() -> T) -> T {
        self.0.set(self.0.get() + 1);
        scope(format!("{name} #{}", self.0.get()), call)
    }
}

/// Calls each operator `times` times in a row at the same line; keeps the results.
fn all_operators(numbered: &Numbered, times: usize) -> Result<()> {
    let device = Device::Cpu;
    let (a, b) = (Tensor::ones((64, 64), DType::F32, &device)?, Tensor::ones((64, 64), DType::F32, &device)?);
    let images = Tensor::ones((2, 3, 32, 32), DType::F32, &device)?;
    let kernels = Tensor::ones((8, 3, 3, 3), DType::F32, &device)?;
    let rows = Tensor::new(&[1u32, 5, 7, 60], &device)?;
    let kept = RefCell::new(Vec::new());
    let call = |name: &'static str, call: &dyn Fn() -> Result<Tensor>| -> Result<()> {
        for _ in 0..times {
            kept.borrow_mut().push(numbered.call(name, call)?);
        }
        Ok(())
    };
    call("zeros", &|| Tensor::zeros((64, 64), DType::F32, &device))?;
    call("full", &|| Tensor::full(3f32, (64, 64), &device))?;
    call("randn", &|| Tensor::randn(0f32, 1., (64, 64), &device))?;
    call("arange", &|| Tensor::arange(0f32, 4096., &device))?;
    call("zeros_like", &|| a.zeros_like())?;
    call("matmul", &|| a.matmul(&b))?;
    call("add", &|| &a + &b)?;
    call("affine", &|| a.affine(2., 1.))?;
    call("broadcast_add", &|| a.broadcast_add(&b.i(0)?))?;
    call("exp", &|| a.exp())?;
    call("relu", &|| a.relu())?;
    call("powf", &|| a.powf(2.))?;
    call("maximum", &|| a.maximum(0.5))?;
    call("sum_keepdim", &|| images.sum_keepdim(0))?;
    call("max_keepdim", &|| images.max_keepdim(0))?;
    call("eq", &|| a.eq(&b))?;
    call("to_dtype", &|| a.to_dtype(DType::F64))?;
    call("contiguous", &|| a.t()?.contiguous())?;
    call("cat", &|| Tensor::cat(&[&a, &b], 0))?;
    call("cat", &|| Tensor::cat(&[&a, &b, &a], 1))?;
    call("stack", &|| Tensor::stack(&[&a, &b], 0))?;
    call("pad_with_zeros", &|| a.pad_with_zeros(0, 1, 1))?;
    call("repeat", &|| a.repeat((2, 1)))?;
    call("index_select", &|| a.index_select(&rows, 0))?;
    call("conv1d", &|| Tensor::ones((2, 3, 64), DType::F32, &device)?.conv1d(&kernels.i((.., .., 0))?, 0, 1, 1, 1))?;
    call("conv2d", &|| images.conv2d(&kernels, 1, 1, 1, 1))?;
    call("conv_transpose2d", &|| images.conv_transpose2d(&kernels.transpose(0, 1)?, 1, 0, 1, 1))?;
    call("max_pool2d", &|| images.max_pool2d(2))?;
    call("avg_pool2d", &|| images.avg_pool2d(2))?;
    call("arg_sort_last_dim", &|| a.arg_sort_last_dim(true))?;
    call("log_sum_exp", &|| images.log_sum_exp(0))?;
    call("var_keepdim", &|| a.var_keepdim(0))?;
    call("softmax", &|| candle_nn::ops::softmax(&a, D::Minus1))?;
    call("softmax", &|| candle_nn::ops::softmax(&images, 1))?;
    call("silu", &|| candle_nn::ops::silu(&a))?;
    call("rms_norm", &|| candle_nn::ops::rms_norm(&a, &a.i(0)?, 1e-5))?;
    call("layer_norm", &|| candle_nn::ops::layer_norm(&a, &a.i(0)?, &a.i(0)?, 1e-5))?;
    call("layer_norm_slow", &|| candle_nn::ops::layer_norm_slow(&a, &a.i(0)?, &a.i(0)?, 1e-5))?;
    call("rms_norm_slow", &|| candle_nn::ops::rms_norm_slow(&a, &a.i(0)?, 1e-5))?;
    call("mse", &|| candle_nn::loss::mse(&a, &b))?;
    call("log_softmax", &|| candle_nn::ops::log_softmax(&a, D::Minus1))?;
    let (heads, half) = (Tensor::ones((1, 2, 64, 32), DType::F32, &device)?, a.i((.., ..16))?.contiguous()?);
    call("rope_slow", &|| candle_nn::rotary_emb::rope_slow(&heads, &half, &half))?;
    Ok(())
}

/// Operators that call others in a loop: two iterations each.
fn loops(numbered: &Numbered) -> Result<()> {
    let device = Device::Cpu;
    let (images, kernels) =
        (Tensor::ones((2, 3, 32, 32), DType::F32, &device)?, Tensor::ones((6, 1, 3, 3), DType::F32, &device)?);
    for _ in 0..5 {
        numbered.call("repeat", || images.repeat((2, 3)))?;
        numbered.call("conv2d", || images.conv2d(&kernels, 1, 1, 1, 3))?;
    }
    Ok(())
}

/// Each result replaces the previous one.
fn a_chain(numbered: &Numbered) -> Result<()> {
    let mut x = Tensor::ones((32, 32), DType::F32, &Device::Cpu)?;
    for _ in 0..20 {
        x = numbered.call("relu", || x.relu())?;
        x = numbered.call("softmax", || candle_nn::ops::softmax(&x, D::Minus1))?;
    }
    for _ in 0..20 {
        x = numbered.call("sqr", || x.sqr())?;
    }
    for _ in 0..20 {
        // The program drops each result at once.
        numbered.call("exp", || x.exp())?;
    }
    Ok(())
}

/// Three layers and a loss with AdamW, whose step allocates for each variable in turn.
fn training(numbered: &Numbered, steps_in_a_row: usize) -> Result<()> {
    let device = Device::Cpu;
    let sizes = [(32, 64), (64, 64), (64, 16)];
    let vars: Vec<(Var, Var)> = sizes
        .iter()
        .map(|size| Ok((Var::randn(0f32, 0.1, *size, &device)?, Var::zeros(size.1, DType::F32, &device)?)))
        .collect::<Result<_>>()?;
    let all = vars.iter().flat_map(|(weight, bias)| [weight.clone(), bias.clone()]).collect();
    let mut optimizer = AdamW::new(all, ParamsAdamW::default())?;
    let (input, target) = (Tensor::ones((24, 32), DType::F32, &device)?, Tensor::ones((24, 16), DType::F32, &device)?);
    for _ in 0..3 {
        let mut x = input.clone();
        for (weight, bias) in &vars {
            x = numbered.call("matmul", || x.matmul(weight))?;
            x = numbered.call("broadcast_add", || x.broadcast_add(bias))?;
            x = numbered.call("relu", || x.relu())?;
        }
        let loss = numbered.call("mse", || candle_nn::loss::mse(&x, &target))?;
        let gradients = scope("backward", || loss.backward())?;
        for _ in 0..steps_in_a_row {
            numbered.call("step", || optimizer.step(&gradients))?;
        }
    }
    Ok(())
}

/// Found calls compared with true ones: the true number, calls merged into another, and superfluous calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rate {
    calls: usize,
    merged: usize,
    split: usize,
}

fn rate(program: &str, run: impl FnOnce(&Numbered) -> Result<()>) -> Rate {
    let _alone = alone();
    // The first matrix product queries the system for its processor, in libraries other than candle's.
    let one = Tensor::ones((64, 64), DType::F32, &Device::Cpu).unwrap();
    one.matmul(&one).unwrap();
    let session = memtrace::builder().min_size(THRESHOLD).start().unwrap();
    run(&Numbered::default()).unwrap();
    let mut data: SnapshotData = session.snapshot().clone();
    drop(session);
    let cpu = data.devices.iter_mut().find(|device| device.device == memtrace::Device::Cpu).unwrap();
    cpu.marks.clear();
    let cpu = data.device(memtrace::Device::Cpu).unwrap();
    let allocs = cpu.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let attribution = attribute::Attribution::new(&data);
    let operator =
        |record: &memtrace::snapshot::Record| Some(attribute::operator(&attribution, record.stack)?.root.to_owned());
    // A scope contains one call of each operator.
    let truth: BTreeSet<(String, String)> = allocs
        .filter_map(|record| Some((data.context_path(record.context), operator(record)?)))
        .filter(|(path, _)| path.contains('#'))
        .collect();
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for call in analysis::operators(&DeviceView::of(&data, cpu)).calls.iter().filter(|call| call.scope.contains('#')) {
        *found.entry((call.scope.to_string(), call.operator.to_string())).or_default() += 1;
    }
    let merged: Vec<_> = truth.iter().filter(|call| !found.contains_key(call)).collect();
    let split: Vec<_> = found.iter().filter(|(_, count)| **count > 1).collect();
    println!(
        "{program}: {} true calls, {} found; merged {merged:?}, split {split:?}",
        truth.len(),
        found.values().sum::<usize>()
    );
    Rate { calls: truth.len(), merged: merged.len(), split: found.values().map(|count| count - 1).sum() }
}

/// Calls of a backward pass by operator.
fn backward_calls(run: impl FnOnce() -> Result<()>) -> BTreeMap<String, u64> {
    let _alone = alone();
    let session = memtrace::builder().min_size(THRESHOLD).start().unwrap();
    run().unwrap();
    let snapshot = session.snapshot();
    let series = analysis::operators(&DeviceView::of(&snapshot, snapshot.device(memtrace::Device::Cpu).unwrap()));
    let mut counts = BTreeMap::new();
    for call in series.calls.iter().filter(|call| call.is_backward) {
        let count = counts.entry(call.operator.to_string()).or_default();
        assert_eq!(call.number, *count);
        *count += 1;
    }
    counts
}

#[test]
fn consecutive_calls_at_one_line_are_separated() {
    let rate = rate("all operators, five times each by one line", |numbered| all_operators(numbered, 5));
    assert!(rate.calls >= 200, "{rate:?}");
    assert_eq!((rate.merged, rate.split), (0, 0));
}

#[test]
fn calls_whose_results_replace_the_previous_one_are_separated() {
    assert_eq!(rate("a chain", a_chain), Rate { calls: 80, merged: 0, split: 0 });
}

#[test]
fn a_step_of_an_optimizer_is_one_call() {
    let rate = rate("training", |numbered| training(numbered, 1));
    assert!(rate.calls >= 3 * 11, "{rate:?}");
    assert_eq!((rate.merged, rate.split), (0, 0));
}

/// As documented.
#[test]
fn operators_that_loop_are_listed_once_per_iteration() {
    assert_eq!(rate("operators that loop", loops), Rate { calls: 10, merged: 0, split: 10 });
}

/// As documented.
#[test]
fn consecutive_steps_of_an_optimizer_are_one_call() {
    let rate = rate("steps in a row", |numbered| training(numbered, 2));
    assert_eq!((rate.merged, rate.split), (3, 0));
}

#[test]
fn every_operator_of_a_backward_pass_is_one_call() {
    const LENGTH: u64 = 30;
    let counts = backward_calls(|| {
        let first = Var::ones((32, 32), DType::F32, &Device::Cpu)?;
        let mut x = first.as_tensor().clone();
        for _ in 0..LENGTH {
            x = x.relu()?;
        }
        x.backward().map(drop)
    });
    println!("{counts:?}");
    // Operators of candle's backward pass for each relu.
    let each = [("ge", 1), ("to_dtype", 1), ("mul", 1), ("add", 1), ("zeros_like", 2)];
    let expected = each.into_iter().map(|(operator, times)| (operator.to_owned(), times * LENGTH));
    assert_eq!(counts, expected.chain([("ones_like".to_owned(), 1)]).collect());
}

#[test]
fn files_of_a_recording_are_read_back() {
    let _alone = alone();
    let session = memtrace::builder().min_size(THRESHOLD).start().unwrap();
    training(&Numbered::default(), 1).unwrap();
    let snapshot = session.snapshot();
    drop(session);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for end in ["json", "json.gz", "svg"] {
        snapshot.write(path(&format!("a.operators.{end}"))).unwrap();
    }
    let operators = snapshot.operators();
    for end in ["json", "json.gz"] {
        assert_eq!(*memtrace::read_operators(path(&format!("a.operators.{end}"))).unwrap(), *operators);
    }
    let error = memtrace::read_operators(path("a.operators.svg")).unwrap_err().to_string();
    assert!(error.contains("a.operators.svg") && error.contains("not JSON"), "{error}");
    assert!(operators.write(path("b.pickle")).is_err());
    let text = operators.to_string();
    assert!(text.contains("tests/recording/operator_series.rs"), "{text}");
}

#[test]
fn figures_have_curves_and_names_of_markers() {
    let _alone = alone();
    let session = memtrace::builder().min_size(THRESHOLD).start().unwrap();
    let kept = scope("load <& more>", || Tensor::ones((64, 64), DType::F32, &Device::Cpu)).unwrap();
    drop(scope("forward", || kept.exp()).unwrap());
    let operators = session.snapshot().operators();
    drop(session);
    let dir = tempfile::tempdir().unwrap();
    operators.write(dir.path().join("a.operators.svg")).unwrap();
    let svg = std::fs::read_to_string(dir.path().join("a.operators.svg")).unwrap();
    for text in [
        "load &lt;&amp; more",
        "forward",
        "Peak inside the call",
        "Reserved (= allocated)",
        "Number of the operator call",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("after each call of an operator").count(), 4);
}
