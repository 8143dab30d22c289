//! Attention with a softmax written out, forward and backward: the port of a PyTorch script.

use candle_core::{D, Device, Result, Tensor, Var};

/// Sizes of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) batch: usize,
    pub(crate) sequence: usize,
    pub(crate) dim: usize,
}

impl Default for Shape {
    /// The sizes of the script.
    fn default() -> Self {
        Self { batch: 8, sequence: 4096, dim: 16 }
    }
}

/// One forward and one backward pass. Returns the sum of the outputs.
pub(crate) fn forward_and_backward(shape: Shape, device: &Device) -> Result<f32> {
    let random = || Var::randn(0f32, 1f32, (shape.batch, shape.sequence, shape.dim), device);
    let (queries, keys, values) = (random()?, random()?, random()?);
    let output = attention(&queries, &keys, &values)?;
    let loss = output.sum_all()?;
    let _gradients = loss.backward()?;
    loss.to_scalar()
}

fn attention(queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
    let scores = queries.matmul(&keys.transpose(1, 2)?)?;
    let scores = (scores / (queries.dim(D::Minus1)? as f64).sqrt())?;
    softmax(&scores)?.matmul(values)
}

fn softmax(scores: &Tensor) -> Result<Tensor> {
    let largest = scores.max_keepdim(D::Minus1)?;
    let exponentials = scores.broadcast_sub(&largest)?.exp()?;
    exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)
}
