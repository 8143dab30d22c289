//! After each epoch the weights are copied if the validation is the best so far; only the best copy is kept.

use super::Result;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};

struct Net {
    up: Linear,
    down: Linear,
}

impl Net {
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.tanh()?;
        Ok(loss::mse(&self.down.forward(&hidden)?, x)?)
    }
}

fn snapshot(params: &[Var]) -> Result<Vec<Tensor>> {
    let mut copies = Vec::new();
    for param in params {
        copies.push(param.as_detached_tensor().copy()?);
    }
    Ok(copies)
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net = Net { up: linear(256, 640, vb.pp("up"))?, down: linear(640, 256, vb.pp("down"))? };
    let params = vars.all_vars();
    let mut sgd = SGD::new(params.clone(), 1.)?;
    let validation = Tensor::randn(0f32, 1., (96, 256), &Device::Cpu)?;
    let mut best: Option<(f32, Vec<Tensor>)> = None;
    let mut saved = 0;
    for _epoch in 0..32 {
        for _batch in 0..2 {
            let x = Tensor::randn(0f32, 1., (64, 256), &Device::Cpu)?;
            sgd.backward_step(&net.loss(&x)?)?;
        }
        let score = net.loss(&validation)?.to_scalar::<f32>()?;
        if best.as_ref().is_none_or(|(lowest, _)| score < *lowest) {
            best = Some((score, snapshot(&params)?));
            saved += 1;
        }
    }
    let (score, weights) = best.unwrap();
    println!("best {score:.4} of {} tensors, saved {saved} times", weights.len());
    Ok(())
}
