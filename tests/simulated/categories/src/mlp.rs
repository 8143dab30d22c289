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
    let layers = truth.while_loading(|| {
        let build = VarBuilder::from_varmap(&weights, DType::F32, device);
        (0..4).map(|n| linear(256, 256, build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let mut optimizer = truth.while_updating(|| AdamW::new(weights.all_vars(), ParamsAdamW::default()))?;
    for step in 0..6u32 {
        let batch = truth.while_reading(|| Tensor::from_vec(vec![step as f32; 64 * 256], (64, 256), device))?;
        let loss = truth.on_the_way_there(|| forward(&layers, &batch)?.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &weights.all_vars());
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
