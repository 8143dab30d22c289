//! Generation with candle_nn's preallocated KV cache, reset for each of three requests.

use super::Result;
use candle_core::{Device, Tensor};
use candle_nn::{kv_cache::KvCache, ops::softmax_last_dim};

const BATCH: usize = 4;
const HEADS: usize = 8;
const DIM: usize = 64;

struct Model {
    qkv: Tensor,
    cache: KvCache,
}

impl Model {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let (batch, len, width) = x.dims3()?;
        let joint = x.reshape((batch * len, width))?.matmul(&self.qkv)?;
        let part = |i: usize| -> Result<Tensor> {
            let one = joint.narrow(1, i * width, width)?.contiguous()?;
            Ok(one.reshape((batch, len, HEADS, DIM))?.transpose(1, 2)?.contiguous()?)
        };
        let (k, v) = self.cache.append(&part(1)?, &part(2)?)?;
        let weights = softmax_last_dim(&(part(0)?.matmul(&k.t()?.contiguous()?)? * 0.125)?)?;
        let mixed = weights.matmul(&v.contiguous()?)?;
        Ok(mixed.transpose(1, 2)?.reshape((batch, len, width))?)
    }
}

pub(super) fn run() -> Result<()> {
    let width = HEADS * DIM;
    let qkv = Tensor::randn(0f32, 0.04, (width, 3 * width), &Device::Cpu)?;
    let mut model = Model { qkv, cache: KvCache::new(2, 160) };
    for request in 0..3 {
        model.cache.reset();
        let prompt = Tensor::randn(0f32, 1., (BATCH, 48, width), &Device::Cpu)?;
        let mut x = model.forward(&prompt)?.narrow(1, 47, 1)?.contiguous()?;
        drop(prompt);
        let mut text = String::new();
        for _ in 0..40 {
            x = model.forward(&x)?;
            let token = x.get(0)?.get(0)?.argmax(0)?.to_scalar::<u32>()?;
            text.push((b'a' + (token % 26) as u8) as char);
        }
        println!("request {request}: {text}");
    }
    Ok(())
}
