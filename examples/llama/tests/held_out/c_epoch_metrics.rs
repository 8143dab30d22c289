//! Collects the predictions of an epoch for its metrics and drops them before the next (5 epochs).

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};

struct Net {
    first: Linear,
    second: Linear,
}

impl Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.relu()?;
        Ok(self.second.forward(&hidden)?)
    }
}

fn accuracy(outputs: &[Tensor], labels: &[Tensor]) -> Result<f32> {
    let predicted = Tensor::cat(outputs, 0)?.argmax(1)?;
    let hits = predicted.eq(&Tensor::cat(labels, 0)?)?.to_dtype(DType::F32)?;
    Ok(hits.mean_all()?.to_scalar::<f32>()?)
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net = Net { first: linear(64, 128, vb.pp("first"))?, second: linear(128, 1000, vb.pp("second"))? };
    let mut sgd = SGD::new(vars.all_vars(), 0.1)?;
    for epoch in 0..5 {
        let (mut outputs, mut labels) = (Vec::new(), Vec::new());
        for batch in 0..16u32 {
            let x = Tensor::randn(0f32, 1., (64, 64), &Device::Cpu)?;
            let classes: Vec<u32> = (0..64).map(|i| (i * 37 + batch) % 1000).collect();
            let y = Tensor::new(classes, &Device::Cpu)?;
            let logits = net.forward(&x)?;
            sgd.backward_step(&loss::cross_entropy(&logits, &y)?)?;
            outputs.push(logits.detach());
            labels.push(y);
        }
        println!("epoch {epoch}: accuracy {:.3}", accuracy(&outputs, &labels)?);
    }
    Ok(())
}
