//! Gradients of four micro-batches are summed, then applied; ten steps.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, VarBuilder, VarMap, linear, loss};

struct Net {
    up: Linear,
    down: Linear,
}

impl Net {
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.relu()?;
        Ok(loss::mse(&self.down.forward(&hidden)?, x)?)
    }
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net = Net { up: linear(192, 768, vb.pp("up"))?, down: linear(768, 192, vb.pp("down"))? };
    let params = vars.all_vars();
    for step in 0..10 {
        let mut sums: Vec<Option<Tensor>> = vec![None; params.len()];
        let mut total = 0f32;
        for _micro in 0..4 {
            let x = Tensor::randn(0f32, 1., (96, 192), &Device::Cpu)?;
            let loss = (net.loss(&x)? / 4.)?;
            total += loss.to_scalar::<f32>()?;
            let grads = loss.backward()?;
            for (sum, param) in sums.iter_mut().zip(&params) {
                let grad = grads.get(param).unwrap().detach();
                *sum = Some(match sum.take() {
                    None => grad,
                    Some(before) => (before + grad)?,
                });
            }
        }
        for (sum, param) in sums.iter().zip(&params) {
            let update = (sum.as_ref().unwrap() * 0.5)?;
            param.set(&(param.as_detached_tensor() - update)?)?;
        }
        println!("step {step}: loss {total:.4}");
    }
    Ok(())
}
