//! Regression; the running sum of the losses is a tensor and so keeps the graph of every step.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};

struct Mlp {
    up: Linear,
    down: Linear,
}

impl Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let wide = self.up.forward(x)?; // <- grows
        let active = wide.relu()?;
        Ok(self.down.forward(&active)?)
    }
}

fn data() -> Result<(Tensor, Tensor)> {
    let x = Tensor::randn(0f32, 1., (64, 48), &Device::Cpu)?;
    let y = x.sum_keepdim(1)?;
    Ok((x, y))
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let mlp = Mlp { up: linear(48, 512, vb.pp("up"))?, down: linear(512, 1, vb.pp("down"))? };
    let mut sgd = SGD::new(vars.all_vars(), 1e-3)?;
    let mut total = Tensor::zeros((), DType::F32, &Device::Cpu)?;
    for _step in 0..64 {
        let (x, y) = data()?;
        let loss = loss::mse(&mlp.forward(&x)?, &y)?;
        sgd.backward_step(&loss)?;
        total = (total + &loss)?;
    }
    let mut eval = 0f32;
    for _step in 0..4 {
        let (x, y) = data()?;
        eval += loss::mse(&mlp.forward(&x)?, &y)?.to_scalar::<f32>()? / 4.;
    }
    println!("mean loss {:.3}, evaluation {eval:.3}", (total / 64.)?.to_scalar::<f32>()?);
    Ok(())
}
