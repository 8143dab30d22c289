//! Generation with one attention block; the keys and values are concatenated at each token.

use super::Result;
use candle_core::{Device, Tensor};
use candle_nn::{Linear, Module, ops::softmax_last_dim};

const HEADS: usize = 4;
const DIM: usize = 64;
const WIDTH: usize = HEADS * DIM;

struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    cache: Option<(Tensor, Tensor)>,
}

fn projection() -> Result<Linear> {
    Ok(Linear::new(Tensor::randn(0f32, 0.06, (WIDTH, WIDTH), &Device::Cpu)?, None))
}

fn split(x: Tensor) -> Result<Tensor> {
    let (batch, len, _) = x.dims3()?;
    Ok(x.reshape((batch, len, HEADS, DIM))?.transpose(1, 2)?.contiguous()?)
}

impl Attention {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let (batch, len, _) = x.dims3()?;
        let q = split(self.query.forward(x)?)?;
        let k = split(self.key.forward(x)?)?;
        let v = split(self.value.forward(x)?)?;
        let (k, v) = match self.cache.take() {
            None => (k, v),
            Some((old_k, old_v)) => (Tensor::cat(&[&old_k, &k], 2)?, Tensor::cat(&[&old_v, &v], 2)?),
        };
        let weights = softmax_last_dim(&(q.matmul(&k.t()?)? * 0.125)?)?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?.reshape((batch, len, WIDTH))?;
        self.cache = Some((k, v));
        Ok(mixed)
    }
}

pub(super) fn run() -> Result<()> {
    let mut block = Attention { query: projection()?, key: projection()?, value: projection()?, cache: None };
    let prompt = Tensor::randn(0f32, 1., (8, 128, WIDTH), &Device::Cpu)?;
    let mut last = block.forward(&prompt)?.narrow(1, 127, 1)?.copy()?;
    drop(prompt);
    let mut tokens = Vec::new();
    for _ in 0..64 {
        last = block.forward(&last)?;
        tokens.push(last.squeeze(1)?.argmax(1)?.to_vec1::<u32>()?);
    }
    println!("{} tokens, last {:?}", tokens.len(), tokens[63]);
    Ok(())
}
