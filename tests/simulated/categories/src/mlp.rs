//! A perceptron with AdamW: the common way, without scopes.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear};

use crate::truth::Truth;

fn forward(layers: &[Linear], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x)?.relu()?;
    }
    Ok(x)
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let layers = truth.load(|| {
        let build = VarBuilder::from_varmap(&weights, DType::F32, device);
        (0..4).map(|n| linear(256, 256, build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let mut optimizer = truth.step(|| AdamW::new(weights.all_vars(), ParamsAdamW::default()))?;
    for step in 0..6u32 {
        let batch = truth.input(|| Tensor::from_vec(vec![step as f32; 64 * 256], (64, 256), device))?;
        let loss = truth.forward(|| forward(&layers, &batch)?.sqr()?.mean_all())?;
        let gradients = truth.backward(|| loss.backward())?;
        truth.are_gradients(&gradients, &weights.all_vars());
        truth.step(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
