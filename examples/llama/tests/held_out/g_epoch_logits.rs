//! Trains a classifier; keeps the logits of every batch of every epoch for a report at the end.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};

struct Net {
    fc1: Linear,
    fc2: Linear,
}

impl Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.fc1.forward(x)?.relu()?;
        let logits = self.fc2.forward(&hidden)?; // <- grows
        Ok(logits)
    }
}

fn batch(seed: u32) -> Result<(Tensor, Tensor)> {
    let x = Tensor::randn(0f32, 1., (64, 64), &Device::Cpu)?;
    let labels: Vec<u32> = (0..64).map(|i| (i * 31 + seed * 17) % 1000).collect();
    Ok((x, Tensor::new(labels, &Device::Cpu)?))
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net = Net { fc1: linear(64, 128, vb.pp("fc1"))?, fc2: linear(128, 1000, vb.pp("fc2"))? };
    let mut sgd = SGD::new(vars.all_vars(), 0.05)?;
    let mut report = Vec::new();
    for epoch in 0..4 {
        for step in 0..15 {
            let (x, y) = batch(step)?;
            let logits = net.forward(&x)?;
            let loss = loss::cross_entropy(&logits, &y)?;
            sgd.backward_step(&loss)?;
            report.push((epoch, logits.detach(), y));
        }
    }
    let mut correct = 0;
    for step in 0..4 {
        let (x, y) = batch(100 + step)?;
        let hits = net.forward(&x)?.argmax(1)?.eq(&y)?;
        correct += hits.to_dtype(DType::U32)?.sum_all()?.to_scalar::<u32>()?;
    }
    println!("{} batches in the report, evaluation {correct}/256", report.len());
    Ok(())
}
