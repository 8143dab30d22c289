//! The networks: modules, one after the other. Those that are checkpointed have one name with a number.

use candle_core::{D, Result, Tensor, Var};
use candle_nn::Func;

use crate::device;

/// A part of a network with its variables.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) module: Func<'static>,
    pub(crate) vars: Vec<Var>,
}

/// Parts, an input, and what the result is compared with.
pub(crate) struct Network {
    pub(crate) parts: Vec<Part>,
    pub(crate) input: Tensor,
    pub(crate) target: Tensor,
}

pub(crate) fn data(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1., shape, &device())
}

pub(crate) fn part(
    name: impl Into<String>,
    shapes: &[&[usize]],
    module: fn(&[Var], &Tensor) -> Result<Tensor>,
) -> Result<Part> {
    let var = |shape: &&[usize]| Var::randn(0f32, 0.1, *shape, &device());
    let vars = shapes.iter().map(var).collect::<Result<Vec<Var>>>()?;
    let own = vars.clone();
    Ok(Part { name: name.into(), module: candle_nn::func(move |x| module(&own, x)), vars })
}

/// Pre-norm attention and a perceptron, each with a residual join, four times.
pub(crate) fn transformer() -> Result<Network> {
    const WIDTH: usize = 64;
    let square: &[usize] = &[WIDTH, WIDTH];
    let mut parts = vec![part("embed", &[square], |vars, x| x.broadcast_matmul(&vars[0]))?];
    for at in 0..4 {
        let shapes = [square, square, square, square, &[WIDTH, 4 * WIDTH], &[4 * WIDTH, WIDTH], &[WIDTH], &[WIDTH]];
        parts.push(part(format!("blocks.{at}"), &shapes, block)?);
    }
    parts.push(part("head", &[square], |vars, x| x.broadcast_matmul(&vars[0]))?);
    Ok(Network { parts, input: data(&[2, 32, WIDTH])?, target: data(&[2, 32, WIDTH])? })
}

fn block(vars: &[Var], x: &Tensor) -> Result<Tensor> {
    let normed = norm(x, &vars[6])?;
    let [q, k, v] = [0, 1, 2].map(|at| heads(&normed.broadcast_matmul(&vars[at])?));
    let (q, k, v) = (q?, k?, v?);
    let weights = candle_nn::ops::softmax(&(q.matmul(&k.t()?.contiguous()?)? * 0.25)?, D::Minus1)?;
    let (batch, length, width) = x.dims3()?;
    let joined = weights.matmul(&v)?.transpose(1, 2)?.contiguous()?.reshape((batch, length, width))?;
    let x = (joined.broadcast_matmul(&vars[3])? + x)?;
    norm(&x, &vars[7])?.broadcast_matmul(&vars[4])?.gelu()?.broadcast_matmul(&vars[5])? + x
}

fn norm(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let centered = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centered.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    centered.broadcast_div(&deviation)?.broadcast_mul(scale)
}

fn heads(x: &Tensor) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    x.reshape((batch, length, 4, width / 4))?.transpose(1, 2)?.contiguous()
}

/// Residual blocks of convolutions.
pub(crate) fn convolutions() -> Result<Network> {
    let mut parts = vec![part("stem", &[&[16, 3, 3, 3]], |vars, x| x.conv2d(&vars[0], 1, 1, 1, 1)?.relu())?];
    for at in 0..5 {
        parts.push(part(format!("stage.{at}"), &[&[32, 16, 3, 3], &[16, 32, 3, 3]], |vars, x| {
            (x.conv2d(&vars[0], 1, 1, 1, 1)?.gelu()?.conv2d(&vars[1], 1, 1, 1, 1)? + x)?.relu()
        })?);
    }
    parts.push(part("pool", &[], |_, x| x.mean((2, 3)))?);
    parts.push(part("head", &[&[16, 10]], |vars, x| x.matmul(&vars[0]))?);
    Ok(Network { parts, input: data(&[4, 3, 24, 24])?, target: data(&[4, 10])? })
}
