//! Operators are recognized by stacks. Each call has a scope with its operator's name as the truth, and the analysis
//! ignores the scopes.

use candle_core::{D, DType, Device, IndexOp, Result, Tensor, Var};
use memtrace::{attribute, scope};

use crate::support::alone;

/// Calls each operator in a scope with the name of its expected root operator.
fn calls() -> Result<()> {
    let device = Device::Cpu;
    let (a, b) = (Tensor::ones((64, 64), DType::F32, &device)?, Tensor::ones((64, 64), DType::F32, &device)?);
    let images = Tensor::ones((2, 3, 32, 32), DType::F32, &device)?;
    let kernels = Tensor::ones((8, 3, 3, 3), DType::F32, &device)?;
    let rows = Tensor::new(&[1u32, 5, 7, 60], &device)?;
    let mut kept = Vec::new();
    let mut call = |name: &'static str, call: &dyn Fn() -> Result<Tensor>| -> Result<()> {
        kept.push(scope(name, call)?);
        Ok(())
    };
    call("zeros", &|| Tensor::zeros((64, 64), DType::F32, &device))?;
    call("ones", &|| Tensor::ones((64, 64), DType::F32, &device))?;
    call("full", &|| Tensor::full(3f32, (64, 64), &device))?;
    call("randn", &|| Tensor::randn(0f32, 1., (64, 64), &device))?;
    call("arange", &|| Tensor::arange(0f32, 4096., &device))?;
    call("zeros_like", &|| a.zeros_like())?;
    call("matmul", &|| a.matmul(&b))?;
    call("add", &|| &a + &b)?;
    call("mul", &|| &a * 2.)?;
    call("broadcast_add", &|| a.broadcast_add(&b.i(0)?))?;
    call("affine", &|| a.affine(2., 1.))?;
    call("exp", &|| a.exp())?;
    call("relu", &|| a.relu())?;
    call("gelu", &|| a.gelu())?;
    call("powf", &|| a.powf(2.))?;
    call("maximum", &|| a.maximum(0.5))?;
    call("sum_keepdim", &|| images.sum_keepdim((0, 2)))?;
    call("max_keepdim", &|| images.max_keepdim(0))?;
    call("argmax", &|| images.argmax(0))?;
    call("eq", &|| a.eq(&b))?;
    call("where_cond", &|| a.ge(&b)?.where_cond(&a, &b))?;
    call("to_dtype", &|| a.to_dtype(DType::F64))?;
    call("contiguous", &|| a.t()?.contiguous())?;
    call("copy", &|| a.copy())?;
    call("cat", &|| Tensor::cat(&[&a, &b], 0))?;
    call("stack", &|| Tensor::stack(&[&a, &b], 0))?;
    call("pad_with_zeros", &|| a.pad_with_zeros(0, 1, 1))?;
    call("repeat", &|| a.repeat((2, 1)))?;
    call("index_select", &|| a.index_select(&rows, 0))?;
    call("gather", &|| a.gather(&rows.reshape((4, 1))?.broadcast_as((4, 64))?.contiguous()?, 0))?;
    call("conv2d", &|| images.conv2d(&kernels, 1, 1, 1, 1))?;
    call("max_pool2d", &|| images.max_pool2d(2))?;
    call("avg_pool2d", &|| images.avg_pool2d(2))?;
    call("upsample_nearest2d", &|| images.upsample_nearest2d(64, 64))?;
    call("arg_sort_last_dim", &|| a.arg_sort_last_dim(true))?;
    call("softmax", &|| candle_nn::ops::softmax(&a, D::Minus1))?;
    call("silu", &|| candle_nn::ops::silu(&a))?;
    call("cross_entropy", &|| candle_nn::loss::cross_entropy(&a, &Tensor::zeros(64, DType::U32, &device)?))?;
    call("rms_norm", &|| candle_nn::ops::rms_norm(&a, &a.i(0)?, 1e-5))?;
    let weights = Var::from_tensor(&a)?;
    let loss = weights.matmul(&b)?.sqr()?.sum_all()?;
    let _gradients = scope("backward", || loss.backward())?;
    Ok(())
}

/// Other operators that a call also needs, on the same line. From `mul` on they end with a tail call of the other operator,
/// which replaces their frame on the stack; `conv2d` on aarch64.
const BESIDES: [(&str, &[&str]); 10] = [
    ("where_cond", &["ge"]),
    ("gather", &["contiguous"]),
    ("cross_entropy", &["zeros"]),
    ("mul", &["affine"]),
    ("upsample_nearest2d", &["interpolate2d"]),
    ("conv2d", &["conv2d_with_algo"]),
    ("eq", &["cmp"]),
    ("sum_keepdim", &["sum"]),
    ("max_keepdim", &["reduce"]),
    ("argmax", &["reduce"]),
];

#[test]
fn the_root_operator_is_the_programs_call() {
    let _alone = alone();
    let session = memtrace::builder().min_size(256).start().unwrap();
    calls().unwrap();
    let snapshot = session.snapshot();
    let cpu = snapshot.device(memtrace::Device::Cpu).unwrap();
    let (mut right, mut unknown, mut wrong, mut backward) = (0, 0, Vec::new(), 0);
    let mut seen = std::collections::BTreeSet::new();
    let attribution = attribute::Attribution::new(&snapshot);
    for record in cpu.records.iter().filter(|record| record.kind == memtrace::snapshot::RecordKind::Alloc) {
        let path = snapshot.context_path(record.context);
        if path.is_empty() {
            continue;
        }
        let besides = BESIDES.iter().find(|(name, _)| *name == path).map_or(&[][..], |(_, besides)| *besides);
        match attribute::operator(&attribution, record.stack) {
            Some(operator) if path == "backward" => backward += usize::from(operator.is_backward),
            Some(operator) if operator.root == path || besides.contains(&operator.root) => {
                right += 1;
                seen.insert(path);
            }
            Some(operator) => wrong.push((path, operator.to_string())),
            None => unknown += 1,
        }
    }
    assert_eq!(wrong, []);
    println!("{right} right, {unknown} unknown, {backward} in the backward pass");
    assert!(seen.len() >= 38, "{} operators allocated: {seen:?}", seen.len());
    assert!(unknown * 200 <= right, "{unknown} of {right} are not known");
    assert!(backward > 5);
}
