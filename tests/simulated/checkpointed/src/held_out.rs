//! Networks that the prediction was not made with: shrinking stages, unrolled cells, mixtures of experts.

use candle_core::{D, DType, Result, Tensor, Var};
use candle_nn::ops::{sigmoid, softmax};

use crate::device;
use crate::networks::{Network, Part, data, part};

const WIDTH: usize = 64;
const TOKENS: usize = 64;
const CHANNELS: usize = 96;
const EXPERTS: usize = 4;
const HIDDEN: usize = 128;

/// Each stage halves the image and doubles the channels; plain convolutions in between.
pub(crate) fn pyramid() -> Result<Network> {
    let mut parts = vec![part("stem", &[&[16, 3, 3, 3]], |vars, x| x.conv2d(&vars[0], 1, 1, 1, 1)?.elu(1.))?];
    for (at, between) in ["lower", "middle", "upper"].into_iter().enumerate() {
        let (from, to): (usize, usize) = (16usize << at, 32usize << at);
        let shapes: [&[usize]; 4] = [&[to, from, 3, 3], &[2 * to, to, 1, 1], &[to, to], &[to, to]];
        parts.push(part(format!("stages.{at}"), &shapes, stage)?);
        parts.push(part(between, &[&[to, to, 1, 1]], |vars, x| x.conv2d(&vars[0], 0, 1, 1, 1)?.silu())?);
    }
    parts.push(part("pool", &[], |_, x| x.mean((2, 3)))?);
    parts.push(part("head", &[&[128, 64]], |vars, x| x.matmul(&vars[0]))?);
    Ok(Network { parts, input: data(&[8, 3, 32, 32])?, target: data(&[8, 64])? })
}

/// A gated convolution, its channels weighted by their means, joined with the smaller image.
fn stage(vars: &[Var], x: &Tensor) -> Result<Tensor> {
    let halves = x.conv2d(&vars[0], 1, 2, 1, 1)?.conv2d(&vars[1], 0, 1, 1, 1)?.chunk(2, 1)?;
    let gated = (halves[0].tanh()? * sigmoid(&halves[1])?)?;
    let (batch, channels, _, _) = gated.dims4()?;
    let weights = sigmoid(&gated.mean((2, 3))?.matmul(&vars[2])?.relu()?.matmul(&vars[3])?)?;
    let weighted = gated.broadcast_mul(&weights.reshape((batch, channels, 1, 1))?)?;
    let smaller = x.avg_pool2d(2)?;
    (weighted + Tensor::cat(&[&smaller, &smaller], 1)?)?.relu()
}

/// Unrolled cells with gates; all layers and the head use one variable.
pub(crate) fn recurrent() -> Result<Network> {
    let shared = Var::randn(0f32, 0.1, (WIDTH, 4 * WIDTH), &device())?;
    let mut parts = vec![part("embed", &[&[WIDTH, WIDTH]], |vars, x| x.broadcast_matmul(&vars[0]))?];
    for at in 0..3 {
        parts.push(layer(at, &shared)?);
    }
    parts.push(head(shared));
    Ok(Network { parts, input: data(&[8, 16, WIDTH])?, target: data(&[8, 16, 4 * WIDTH])? })
}

/// A layer, with the shared variable among its own: the wrapper keeps the gradients of these only.
fn layer(at: usize, shared: &Var) -> Result<Part> {
    let name = format!("layers.{at}");
    let shapes: [&[usize]; 2] = [&[WIDTH, 4 * WIDTH], &[4 * WIDTH]];
    let mut vars = part(name.as_str(), &shapes, cells)?.vars;
    vars.push(shared.clone());
    let own = vars.clone();
    Ok(Part { name, module: candle_nn::func(move |x| cells(&own, x)), vars })
}

/// A product with the shared variable, which the optimizer has from the layers.
fn head(shared: Var) -> Part {
    Part { name: "head".to_owned(), module: candle_nn::func(move |x| x.broadcast_matmul(&shared)), vars: Vec::new() }
}

/// A cell for each position, one after the other, with a residual join.
fn cells(vars: &[Var], x: &Tensor) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let read = x.broadcast_matmul(&vars[0])?.broadcast_add(&vars[1])?;
    let mut hidden = Tensor::zeros((batch, width), DType::F32, x.device())?;
    let mut cell = hidden.clone();
    let mut all = Vec::new();
    for at in 0..length {
        let gates = (read.narrow(1, at, 1)?.squeeze(1)? + hidden.matmul(&vars[2])?)?.chunk(4, 1)?;
        cell = ((sigmoid(&gates[0])? * &cell)? + (sigmoid(&gates[1])? * gates[2].tanh()?)?)?;
        hidden = (sigmoid(&gates[3])? * cell.tanh()?)?;
        all.push(hidden.clone());
    }
    Tensor::stack(&all, 1)? + x
}

/// Experts for the channels and for the tokens in turn: each module's result is a transposed view.
pub(crate) fn mixtures() -> Result<Network> {
    let mut parts = vec![part("patches", &[&[32, CHANNELS]], |vars, x| x.broadcast_matmul(&vars[0]))?];
    for at in 0..4 {
        let width = if at % 2 == 0 { CHANNELS } else { TOKENS };
        let shapes: [&[usize]; 3] = [&[width, EXPERTS], &[EXPERTS, width, 2 * HIDDEN], &[EXPERTS, HIDDEN, width]];
        parts.push(part(format!("mixtures.{at}"), &shapes, mixture)?);
    }
    parts.push(part("pool", &[], |_, x| x.mean(1))?);
    parts.push(part("head", &[&[CHANNELS, 32]], |vars, x| x.matmul(&vars[0]))?);
    Ok(Network { parts, input: data(&[8, TOKENS, 32])?, target: data(&[8, 32])? })
}

/// Every expert's gated unit for every row, weighted, with a residual join.
fn mixture(vars: &[Var], x: &Tensor) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let rows = norm(x)?.reshape((batch * length, width))?;
    let shares = softmax(&rows.matmul(&vars[0])?, 1)?.t()?.unsqueeze(2)?;
    let halves = rows.broadcast_left(EXPERTS)?.matmul(&vars[1])?.chunk(2, 2)?;
    let made = (halves[0].silu()? * &halves[1])?.matmul(&vars[2])?;
    let sum = made.broadcast_mul(&shares)?.sum(0)?.reshape((batch, length, width))?;
    (sum + x)?.transpose(1, 2)
}

/// Rows divided by their root mean square.
fn norm(x: &Tensor) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&size)
}
