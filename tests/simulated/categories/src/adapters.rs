//! A frozen base with loaded weights, and trained low-rank adapters.

use std::collections::HashMap;

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Linear, Optimizer, ParamsAdamW, VarBuilder, linear, loss};

use crate::truth::Truth;

const WIDTH: usize = 768;
const LAYERS: usize = 4;
const RANK: usize = 8;

/// Weights as from a file.
fn pretrained(device: &Device) -> Result<HashMap<String, Tensor>> {
    let mut tensors = HashMap::new();
    for n in 0..LAYERS {
        let weight = Tensor::from_vec(vec![0.01f32; WIDTH * WIDTH], (WIDTH, WIDTH), device)?;
        tensors.insert(format!("{n}.weight"), weight);
        tensors.insert(format!("{n}.bias"), Tensor::from_vec(vec![0f32; WIDTH], WIDTH, device)?);
    }
    Ok(tensors)
}

/// `base(x) + x · down · up`.
struct Adapted {
    base: Linear,
    down: Var,
    up: Var,
}

impl Adapted {
    fn new(build: VarBuilder<'_>) -> Result<Self> {
        let down = Var::randn(0f32, 0.02, (WIDTH, RANK), build.device())?;
        let up = Var::zeros((RANK, WIDTH), DType::F32, build.device())?;
        Ok(Self { base: linear(WIDTH, WIDTH, build)?, down, up })
    }
}

impl Module for Adapted {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let change = x.matmul(&self.down)?.matmul(&self.up)?;
        self.base.forward(x)? + (change * (16. / RANK as f64))?
    }
}

fn forward(layers: &[Adapted], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = (layer.forward(&x)?.relu()? + x)?;
    }
    Ok(x)
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let layers = truth.while_loading(|| {
        let build = VarBuilder::from_tensors(pretrained(device)?, DType::F32, device);
        (0..LAYERS).map(|n| Adapted::new(build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let vars: Vec<Var> = layers.iter().flat_map(|layer| [layer.down.clone(), layer.up.clone()]).collect();
    let params = ParamsAdamW { lr: 1e-4, ..Default::default() };
    let mut optimizer = truth.while_updating(|| candle_nn::AdamW::new(vars.clone(), params))?;
    for step in 0..5u32 {
        let batch = |value: f32| truth.while_reading(|| Tensor::from_vec(vec![value; 64 * WIDTH], (64, WIDTH), device));
        let (x, target) = (batch(step as f32)?, batch(0.5)?);
        let loss = truth.on_the_way_there(|| loss::mse(&forward(&layers, &x)?, &target))?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
