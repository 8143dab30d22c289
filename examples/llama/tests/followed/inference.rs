//! Programs that compute without a backward pass, or between two backward passes.

use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    ("a rollout with the policy's variables", "kept_by_variables", rollout),
    ("an evaluation that keeps its outputs", "kept_by_variables", evaluation),
    ("a cache that is joined", "kept_by_variables", generation),
    ("one long statement", NOTHING, chain),
    ("outputs of each request", "growth", outputs),
    ("a cache without a bound", "growth", unbounded),
    ("a shadowed value", "live_twice", shadowed),
    ("shadowed values below the peak", NOTHING, attention),
    ("shadowed values over variables", "kept_by_variables", shadowed_over_variables),
    ("a shadowed value around a call", "live_twice", around_a_call),
    ("a value in a branch", "live_twice", branch),
];

const WIDTH: usize = 128;
const ROWS: usize = 1024;

fn rollout(cured: bool) -> Result<Kept> {
    let policy = Net::new(WIDTH)?;
    let mut optimizer = policy.sgd()?;
    for _update in 0..3 {
        let mut trajectory = Vec::new();
        let mut state = randn(ROWS, WIDTH)?;
        for _ in 0..12 {
            let logits = if cured { policy.infer(&state)? } else { policy.forward(&state)? };
            state = randn(ROWS, WIDTH)?;
            trajectory.push(logits);
        }
        let target = Tensor::stack(&trajectory, 0)?.mean(0)?.detach();
        drop(trajectory);
        let loss = (policy.forward(&state)? - target)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
    }
    nothing()
}

fn evaluation(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    for _epoch in 0..2 {
        for _ in 0..4 {
            optimizer.backward_step(&net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?)?;
        }
        let mut outputs = Vec::new();
        for _ in 0..16 {
            let batch = randn(ROWS, WIDTH)?;
            outputs.push(if cured { net.infer(&batch)? } else { net.forward(&batch)? });
        }
        Tensor::cat(&outputs, 0)?.mean_all()?.to_scalar::<f32>()?;
    }
    nothing()
}

fn generation(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut token = randn(16, WIDTH)?;
    let mut cache: Option<Tensor> = None;
    for _ in 0..60 {
        let key = if cured { net.infer(&token)? } else { net.forward(&token)? };
        let all = match cache.take() {
            None => key,
            Some(before) => Tensor::cat(&[&before, &key], 0)?,
        };
        token = randn(16, WIDTH)?;
        cache = Some(all);
    }
    nothing()
}

/// Rust keeps a statement's temporaries until the statement ends, whatever the weights are.
fn chain(cured: bool) -> Result<Kept> {
    let weight = Var::randn(0f32, 1., (ROWS, WIDTH), CPU)?;
    let weight = if cured { weight.as_detached_tensor() } else { weight.as_tensor().clone() };
    let x = randn(ROWS, WIDTH)?;
    let x = x.mul(&weight)?.tanh()?.affine(2., 1.)?.sqr()?.sqrt()?.exp()?.affine(0.5, 0.)?.tanh()?.sum_all()?;
    Ok(Box::new(x.to_scalar::<f32>()?))
}

fn outputs(cured: bool) -> Result<Kept> {
    let weight = randn(WIDTH, WIDTH)?;
    let (mut outputs, mut sum) = (Vec::new(), 0.);
    for _request in 0..40 {
        let output = randn(ROWS, WIDTH)?.matmul(&weight)?.tanh()?;
        sum += output.sum_all()?.to_scalar::<f32>()?;
        if !cured {
            outputs.push(output);
        }
    }
    Ok(Box::new(sum))
}

fn unbounded(cured: bool) -> Result<Kept> {
    let mut masks = HashMap::new();
    for length in 300..340usize {
        if cured {
            masks.clear();
        }
        let mask = masks.entry(length).or_insert(Tensor::ones((length, 300), DType::F32, CPU)?);
        mask.sum_all()?.to_scalar::<f32>()?;
    }
    nothing()
}

fn shadowed(cured: bool) -> Result<Kept> {
    if cured {
        let mut x = randn(ROWS, WIDTH)?;
        x = x.sqr()?;
        x = x.exp()?;
        x = x.sqrt()?;
        return Ok(Box::new(x.sum_all()?.to_scalar::<f32>()?));
    }
    let x = randn(ROWS, WIDTH)?;
    let x = x.sqr()?;
    let x = x.exp()?;
    let x = x.sqrt()?;
    Ok(Box::new(x.sum_all()?.to_scalar::<f32>()?))
}

fn attention(cured: bool) -> Result<Kept> {
    fn attend(scores: &Tensor, cured: bool) -> Result<f32> {
        if cured {
            let mut scores = (scores / 8.)?;
            scores = (scores - 1.)?;
            scores = scores.exp()?;
            return scores.sum_all()?.to_scalar();
        }
        let scores = (scores / 8.)?;
        let scores = (scores - 1.)?;
        let scores = scores.exp()?;
        scores.sum_all()?.to_scalar()
    }
    let scores = randn(ROWS, WIDTH)?;
    let sums: Vec<f32> = (0..4).map(|_| attend(&scores, cured)).collect::<Result<_>>()?;
    Ok(Box::new(sums))
}

/// A validation without a backward pass. The graph also holds the shadowed values.
fn shadowed_over_variables(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    for _ in 0..12 {
        let x = randn(ROWS, WIDTH)?;
        let x = if cured { net.infer(&x)? } else { net.forward(&x)? };
        let x = if cured { net.infer(&x)? } else { net.forward(&x)? };
        let x = if cured { net.infer(&x)? } else { net.forward(&x)? };
        x.sum_all()?.to_scalar::<f32>()?;
    }
    nothing()
}

fn around_a_call(cured: bool) -> Result<Kept> {
    fn normalized(x: &Tensor) -> Result<Tensor> {
        let mean = x.mean_all()?.to_scalar::<f32>()?;
        x.affine(1., -f64::from(mean))
    }
    if cured {
        let mut x = randn(ROWS, WIDTH)?;
        x = normalized(&x)?;
        x = x.tanh()?;
        return Ok(Box::new(normalized(&x)?.sum_all()?.to_scalar::<f32>()?));
    }
    let x = randn(ROWS, WIDTH)?;
    let x = normalized(&x)?;
    let x = x.tanh()?;
    Ok(Box::new(normalized(&x)?.sum_all()?.to_scalar::<f32>()?))
}

fn branch(cured: bool) -> Result<Kept> {
    let sum = if cured {
        let mut image = Tensor::ones((ROWS, WIDTH), DType::F64, CPU)?;
        image = (image * 0.5)?;
        image = image.ceil()?;
        image.sum_all()?.to_scalar::<f64>()?
    } else {
        let image = Tensor::ones((ROWS, WIDTH), DType::F64, CPU)?;
        let scaled = (&image * 0.5)?;
        let rounded = scaled.ceil()?;
        rounded.sum_all()?.to_scalar::<f64>()?
    };
    Ok(Box::new(sum))
}
