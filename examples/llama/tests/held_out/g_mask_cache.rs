//! Chunked prefill of a long stream; masks are cached by (length, offset), and no offset comes back.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::ops::softmax_last_dim;
use std::collections::HashMap;

const CHUNK: usize = 32;

#[derive(Default)]
struct Masks {
    cache: HashMap<(usize, usize), Tensor>,
}

impl Masks {
    fn get(&mut self, len: usize, offset: usize) -> Result<Tensor> {
        if let Some(mask) = self.cache.get(&(len, offset)) {
            return Ok(mask.clone());
        }
        let width = offset + len;
        let hide = |i: usize| i % width > offset + i / width;
        let bias: Vec<f32> = (0..len * width).map(|i| if hide(i) { f32::NEG_INFINITY } else { 0. }).collect(); // <- grows
        let mask = Tensor::from_vec(bias, (len, width), &Device::Cpu)?;
        self.cache.insert((len, offset), mask.clone());
        Ok(mask)
    }
}

pub(super) fn run() -> Result<()> {
    let keys = Tensor::zeros((2176, 64), DType::F32, &Device::Cpu)?;
    let mut masks = Masks::default();
    let mut checksum = 0f32;
    for chunk in 0..48 {
        let offset = 576 + chunk * CHUNK;
        let mut x = Tensor::randn(0f32, 1., (CHUNK, 64), &Device::Cpu)?;
        keys.slice_set(&x, 0, offset)?;
        let seen = keys.narrow(0, 0, offset + CHUNK)?;
        for _layer in 0..3 {
            let scores = x.matmul(&seen.t()?)?;
            let weights = softmax_last_dim(&(scores + masks.get(CHUNK, offset)?)?)?;
            x = weights.matmul(&seen)?;
        }
        checksum += x.sum_all()?.to_scalar::<f32>()?;
    }
    println!("{} masks, checksum {checksum:.3}", masks.cache.len());
    Ok(())
}
