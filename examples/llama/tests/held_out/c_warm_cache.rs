//! Rotary tables are cached by the bucketed length; twelve lengths come back again and again.

use super::Result;
use candle_core::{D, Device, Tensor};
use std::collections::HashMap;

#[derive(Default)]
struct Rotary {
    tables: HashMap<usize, (Tensor, Tensor)>,
    misses: usize,
}

impl Rotary {
    fn tables(&mut self, len: usize) -> Result<(Tensor, Tensor)> {
        if let Some(pair) = self.tables.get(&len) {
            return Ok(pair.clone());
        }
        self.misses += 1;
        let angle = |i: usize| (i / 128) as f32 * 10000f32.powf(-((i % 64) as f32) / 64.);
        let cos: Vec<f32> = (0..len * 128).map(|i| angle(i).cos()).collect();
        let sin: Vec<f32> = (0..len * 128).map(|i| angle(i).sin()).collect();
        let cos = Tensor::from_vec(cos, (len, 128), &Device::Cpu)?;
        let sin = Tensor::from_vec(sin, (len, 128), &Device::Cpu)?;
        self.tables.insert(len, (cos.clone(), sin.clone()));
        Ok((cos, sin))
    }
    fn apply(&mut self, x: &Tensor) -> Result<Tensor> {
        let (cos, sin) = self.tables(x.dim(0)?)?;
        let half = x.dim(D::Minus1)? / 2;
        let turned = Tensor::cat(&[x.narrow(1, half, half)?.neg()?, x.narrow(1, 0, half)?], 1)?;
        Ok(((x * cos)? + (turned * sin)?)?)
    }
}

pub(super) fn run() -> Result<()> {
    let mut rotary = Rotary::default();
    let noise = Tensor::randn(0f32, 1., (1024, 128), &Device::Cpu)?;
    let mut sum = 0f32;
    for request in 0..240 {
        let bucket = (request * 5) % 12;
        let x = (noise.narrow(0, 0, 256 + 64 * bucket)? * 0.5)?;
        for _layer in 0..2 {
            sum += rotary.apply(&x)?.mean_all()?.to_scalar::<f32>()?;
        }
    }
    println!("{} misses, sum {sum:.3}", rotary.misses);
    Ok(())
}
