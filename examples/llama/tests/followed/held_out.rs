//! Programs that were written from docs/findings.md after the advice was corrected, and not run before that.

use candle_nn::{Linear, Module, VarBuilder, VarMap, linear};

use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    ("pairs that are collected, of detached weights", NOTHING, pairs),
    ("two losses of one trunk", "kept_loss", one_trunk),
    ("the fake after the real", "kept_loss", fake_after_real),
    ("micro-batches", NOTHING, micro_batches),
    ("a sequence with one backward pass", NOTHING, sequence),
    ("log-probabilities of an episode", NOTHING, episode),
    ("a validation with linear layers", "kept_by_variables", validation),
    ("predictions of each request", "kept_by_variables", predictions),
    ("an average of differences", "growth", differences),
    ("a norm of the weights", "growth", norms),
    ("rows of a file", "growth", rows),
    ("a transposed filter", "operator_temporaries", transposed_filter),
    ("a running sum of columns", "square", columns),
    ("a replay buffer with a bound", "kept_by_variables", replay),
    ("three stages of an image", "live_twice", stages),
];

const WIDTH: usize = 128;
const ROWS: usize = 1024;

fn sum(tensors: &[(Tensor, Tensor)]) -> Result<f32> {
    tensors.iter().map(|(a, b)| (a + b)?.sum_all()?.to_scalar::<f32>()).sum()
}

fn pairs(_: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    for _epoch in 0..3 {
        let weights = net.weights.each_ref().map(Var::as_detached_tensor);
        let mut pairs = Vec::new();
        for _ in 0..12 {
            let x = randn(ROWS, WIDTH)?;
            pairs.push((x.matmul(&weights[0])?.tanh()?, x.matmul(&weights[1])?.sqr()?));
        }
        sum(&pairs)?;
        drop(pairs);
        optimizer.backward_step(&net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?)?;
    }
    nothing()
}

fn one_trunk(cured: bool) -> Result<Kept> {
    let (trunk, one, other) = (Net::new(WIDTH)?, Net::new(WIDTH)?, Net::new(WIDTH)?);
    let (mut of_one, mut of_other) = (one.sgd()?, other.sgd()?);
    for _ in 0..5 {
        let features = trunk.forward(&randn(ROWS, WIDTH)?)?;
        let first = one.forward(&features)?.sqr()?.mean_all()?;
        of_one.backward_step(&first)?;
        let first = (!cured).then_some(first);
        let second = (other.forward(&features)? - 1.)?.sqr()?.mean_all()?;
        of_other.backward_step(&second)?;
        drop(first);
    }
    nothing()
}

fn fake_after_real(cured: bool) -> Result<Kept> {
    let (generator, judge) = (Net::new(WIDTH)?, Net::new(WIDTH)?);
    let (mut of_generator, mut of_judge) = (generator.sgd()?, judge.sgd()?);
    for _ in 0..5 {
        let real = (judge.forward(&randn(ROWS, WIDTH)?)? - 1.)?.sqr()?.mean_all()?;
        let fake = generator.forward(&randn(ROWS, WIDTH)?)?;
        let wrong = judge.forward(&fake.detach())?.sqr()?.mean_all()?;
        let judged = (&real + &wrong)?;
        of_judge.backward_step(&judged)?;
        let mut losses = Some((real, wrong, judged));
        if cured {
            losses = None;
        }
        let fooled = (judge.forward(&fake)? - 1.)?.sqr()?.mean_all()?;
        of_generator.backward_step(&fooled)?;
        drop(losses);
    }
    nothing()
}

fn micro_batches(_: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    for _step in 0..4 {
        let mut sum = Tensor::zeros((), DType::F32, CPU)?;
        for _micro in 0..4 {
            sum = (sum + net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?)?;
        }
        optimizer.backward_step(&sum)?;
    }
    nothing()
}

fn sequence(_: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    for _ in 0..4 {
        let mut state = randn(ROWS, WIDTH)?;
        for _ in 0..5 {
            state = (net.forward(&state)? + randn(ROWS, WIDTH)?)?.tanh()?;
        }
        optimizer.backward_step(&state.sqr()?.mean_all()?)?;
    }
    nothing()
}

/// The backward pass at the end needs the values of all steps.
fn episode(_: bool) -> Result<Kept> {
    let policy = Net::new(WIDTH)?;
    let mut optimizer = policy.sgd()?;
    for _ in 0..4 {
        let mut chosen = Vec::new();
        for _ in 0..6 {
            chosen.push(policy.forward(&randn(ROWS, WIDTH)?)?.mean_all()?);
        }
        optimizer.backward_step(&Tensor::stack(&chosen, 0)?.mean_all()?)?;
    }
    nothing()
}

fn layers(varmap: &VarMap) -> Result<[Linear; 2]> {
    let vb = VarBuilder::from_varmap(varmap, DType::F32, CPU);
    Ok([linear(WIDTH, 4 * WIDTH, vb.pp("up"))?, linear(4 * WIDTH, WIDTH, vb.pp("down"))?])
}

fn through([up, down]: &[Linear; 2], x: &Tensor) -> Result<Tensor> {
    let hidden = up.forward(x)?.relu()?;
    down.forward(&hidden)
}

fn validation(cured: bool) -> Result<Kept> {
    let varmap = VarMap::new();
    let model = layers(&varmap)?;
    let mut optimizer = SGD::new(varmap.all_vars(), 1e-3)?;
    for _epoch in 0..2 {
        optimizer.backward_step(&through(&model, &randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?)?;
        let mut outputs = Vec::new();
        for _ in 0..10 {
            let output = through(&model, &randn(ROWS, WIDTH)?)?;
            outputs.push(if cured { output.detach() } else { output });
        }
        Tensor::cat(&outputs, 0)?.mean_all()?.to_scalar::<f32>()?;
    }
    nothing()
}

/// A server with weights from a VarMap that collects its answers and sends a hundred at once.
fn predictions(cured: bool) -> Result<Kept> {
    let varmap = VarMap::new();
    let model = layers(&varmap)?;
    for _batch in 0..2 {
        let mut answers = Vec::new();
        for _ in 0..20 {
            let answer = through(&model, &randn(ROWS / 4, WIDTH)?)?.tanh()?;
            answers.push(if cured { answer.detach() } else { answer });
        }
        Tensor::cat(&answers, 0)?.to_vec2::<f32>()?;
    }
    nothing()
}

/// The newest values are kept together with their graphs.
fn replay(cured: bool) -> Result<Kept> {
    let varmap = VarMap::new();
    let model = layers(&varmap)?;
    let mut buffer = std::collections::VecDeque::new();
    for _ in 0..60 {
        let state = randn(64, WIDTH)?;
        let value = through(&model, &state)?;
        buffer.push_back((state, if cured { value.detach() } else { value }));
        if buffer.len() > 20 {
            buffer.pop_front();
        }
    }
    nothing()
}

fn differences(cured: bool) -> Result<Kept> {
    let net = Net::new(256)?;
    let mut optimizer = net.sgd()?;
    let mut average = net.weights[0].as_detached_tensor();
    for _ in 0..30 {
        optimizer.backward_step(&net.forward(&randn(64, 256)?)?.sqr()?.mean_all()?)?;
        let weight = if cured { net.weights[0].as_detached_tensor() } else { net.weights[0].as_tensor().clone() };
        average = (&average + ((weight - &average)? * 0.1)?)?;
    }
    nothing()
}

fn norms(cured: bool) -> Result<Kept> {
    let net = Net::new(512)?;
    let mut total = Tensor::zeros((), DType::F32, CPU)?;
    let mut number = 0.;
    for _ in 0..20 {
        let norm = net.weights[1].affine(2., 0.)?.sqr()?.sum_all()?;
        if cured {
            number += norm.to_scalar::<f32>()?;
        } else {
            total = (total + norm)?;
        }
    }
    Ok(Box::new(total.to_scalar::<f32>()? + number))
}

fn rows(cured: bool) -> Result<Kept> {
    let mut rows = Vec::new();
    let mut sum = 0.;
    for row in 0..100u32 {
        let values: Vec<f32> = (0..20_000u32).map(|at| (at ^ row) as f32).collect();
        sum += values.iter().sum::<f32>();
        if !cured {
            rows.push(values);
        }
    }
    Ok(Box::new(sum))
}

fn transposed_filter(cured: bool) -> Result<Kept> {
    let signal = Tensor::randn(0f32, 1., (16, 1, 512), CPU)?;
    let kernel = Tensor::randn(0f32, 1., (1, 1, 48), CPU)?;
    let filtered = |signal: &Tensor| signal.conv_transpose1d(&kernel, 0, 0, 1, 1, 1);
    if !cured {
        return Ok(Box::new(filtered(&signal)?));
    }
    Ok(Box::new((0..16).map(|row| filtered(&signal.narrow(0, row, 1)?)).collect::<Result<Vec<_>>>()?))
}

fn columns(cured: bool) -> Result<Kept> {
    let x = Tensor::ones((1536, 3), DType::F32, CPU)?;
    if !cured {
        return Ok(Box::new(x.cumsum(0)?));
    }
    let mut parts: Vec<Tensor> = Vec::new();
    for part in 0..16 {
        let sums = x.narrow(0, part * 96, 96)?.cumsum(0)?;
        let sums = match parts.last() {
            Some(before) => sums.broadcast_add(&before.narrow(0, 95, 1)?)?,
            None => sums,
        };
        parts.push(sums);
    }
    Ok(Box::new(Tensor::cat(&parts, 0)?))
}

fn stages(cured: bool) -> Result<Kept> {
    let image = Tensor::rand(0f32, 1., (3, 256, 256), CPU)?;
    for _ in 0..3 {
        if cured {
            let mut scaled = image.affine(2., -1.)?;
            scaled = scaled.sqr()?;
            scaled = scaled.sqrt()?;
            scaled.abs()?.mean_all()?.to_scalar::<f32>()?;
        } else {
            let scaled = image.affine(2., -1.)?;
            let squared = scaled.sqr()?;
            let rooted = squared.sqrt()?;
            rooted.abs()?.mean_all()?.to_scalar::<f32>()?;
        }
    }
    nothing()
}
