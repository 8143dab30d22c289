//! A recurrent net trained on a stream; the state goes on to the next chunk without detach.

use super::Result;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, SGD};

struct Cell {
    input: Var,
    recurrent: Var,
    output: Var,
}

impl Cell {
    fn new() -> Result<Self> {
        let dev = Device::Cpu;
        Ok(Cell {
            input: Var::randn(0f32, 0.1, (32, 96), &dev)?,
            recurrent: Var::randn(0f32, 0.05, (96, 96), &dev)?,
            output: Var::randn(0f32, 0.1, (96, 8), &dev)?,
        })
    }
    fn step(&self, x: &Tensor, state: &Tensor) -> Result<Tensor> {
        let next = (x.matmul(&self.input)? + state.matmul(&self.recurrent)?)?.tanh()?; // <- grows
        Ok(next)
    }
}

pub(super) fn run() -> Result<()> {
    let cell = Cell::new()?;
    let vars = vec![cell.input.clone(), cell.recurrent.clone(), cell.output.clone()];
    let mut sgd = SGD::new(vars, 1e-3)?;
    let mut state = Tensor::zeros((256, 96), DType::F32, &Device::Cpu)?;
    let mut log = Vec::new();
    for _chunk in 0..32 {
        let x = Tensor::randn(0f32, 1., (256, 32), &Device::Cpu)?;
        let target = x.narrow(1, 0, 8)?;
        state = cell.step(&x, &state)?;
        let loss = (state.matmul(&cell.output)? - target)?.sqr()?.mean_all()?;
        sgd.backward_step(&loss)?;
        log.push(loss.to_scalar::<f32>()?);
    }
    println!("loss {:.3} -> {:.3}", log[0], log[log.len() - 1]);
    Ok(())
}
