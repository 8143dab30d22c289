//! A decoder of four layers; a Vec holds each layer's keys and values; two requests.

use super::Result;
use candle_core::{Device, Tensor};
use candle_nn::ops::softmax_last_dim;

type Cache = Vec<Option<(Tensor, Tensor)>>;
const HEADS: usize = 4;
const DIM: usize = 64;

struct Layer {
    qkv: [Tensor; 3],
}

impl Layer {
    fn load() -> Result<Self> {
        let weight = || Tensor::randn(0f32, 0.06, (HEADS * DIM, HEADS * DIM), &Device::Cpu);
        Ok(Layer { qkv: [weight()?, weight()?, weight()?] })
    }
    fn project(&self, which: usize, x: &Tensor) -> Result<Tensor> {
        let (batch, len, width) = x.dims3()?;
        let y = x.reshape((batch * len, width))?.matmul(&self.qkv[which])?;
        Ok(y.reshape((batch, len, HEADS, DIM))?.transpose(1, 2)?.contiguous()?)
    }
    fn forward(&self, x: &Tensor, cache: &mut Option<(Tensor, Tensor)>) -> Result<Tensor> {
        let (mut k, mut v) = (self.project(1, x)?, self.project(2, x)?);
        if let Some((old_k, old_v)) = cache.take() {
            k = Tensor::cat(&[old_k, k], 2)?;
            v = Tensor::cat(&[old_v, v], 2)?;
        }
        let weights = softmax_last_dim(&(self.project(0, x)?.matmul(&k.t()?)? * 0.125)?)?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?.reshape(x.shape())?;
        *cache = Some((k, v));
        Ok((x + mixed)?)
    }
}

pub(super) fn run() -> Result<()> {
    let layers = (0..4).map(|_| Layer::load()).collect::<Result<Vec<_>>>()?;
    let mut caches: Cache = vec![None; layers.len()];
    for request in 0..2 {
        caches.fill(None);
        let mut x = Tensor::randn(0f32, 1., (8, 64, HEADS * DIM), &Device::Cpu)?;
        for _ in 0..40 {
            for (layer, cache) in layers.iter().zip(&mut caches) {
                x = layer.forward(&x, cache)?;
            }
            x = (x.narrow(1, x.dim(1)? - 1, 1)? * 0.5)?;
        }
        println!("request {request}: {:.3}", x.mean_all()?.to_scalar::<f32>()?);
    }
    Ok(())
}
