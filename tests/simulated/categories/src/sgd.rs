//! One large linear layer with candle's SGD, which keeps no state between steps.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{Optimizer, SGD, VarBuilder, VarMap, linear};

use crate::truth::Truth;

const WIDTH: usize = 2048;

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let layer = truth.while_loading(|| linear(WIDTH, WIDTH, VarBuilder::from_varmap(&weights, DType::F32, device)))?;
    let vars = crate::variables(&weights);
    let mut optimizer = truth.while_updating(|| SGD::new(vars.clone(), 0.1))?;
    let batch = truth.while_reading(|| Tensor::from_vec(vec![1f32; 32 * WIDTH], (32, WIDTH), device))?;
    for _ in 0..3 {
        let loss = truth.on_the_way_there(|| layer.forward(&batch)?.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
