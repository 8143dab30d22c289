//! A perceptron with averaged copies of its weights (EMA), which a last evaluation uses.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Linear, Optimizer, VarBuilder, VarMap, linear, loss};
use memtrace::Category::Parameter;

use crate::truth::Truth;

const WIDTH: usize = 512;

/// Each layer's copy: `ema = ema * 0.99 + w * 0.01`.
struct Averaged(Vec<Linear>);

impl Averaged {
    fn new(layers: &[Linear]) -> Result<Self> {
        let copy = |layer: &Linear| {
            let bias = layer.bias().map(|bias| bias.detach().copy()).transpose()?;
            Ok(Linear::new(layer.weight().detach().copy()?, bias))
        };
        Ok(Self(layers.iter().map(copy).collect::<Result<_>>()?))
    }

    fn update(&mut self, truth: &Truth, layers: &[Linear]) -> Result<()> {
        for (ema, layer) in self.0.iter_mut().zip(layers) {
            let weight = average(truth, ema.weight(), layer.weight())?;
            let bias = match (ema.bias(), layer.bias()) {
                (Some(old), Some(new)) => Some(average(truth, old, new)?),
                _ => None,
            };
            *ema = Linear::new(weight, bias);
        }
        Ok(())
    }
}

/// Detached, because a graph would keep all versions.
fn average(truth: &Truth, old: &Tensor, new: &Tensor) -> Result<Tensor> {
    let averaged = ((old * 0.99)? + (new.detach() * 0.01)?)?;
    truth.is(&averaged, Parameter);
    Ok(averaged)
}

fn forward(layers: &[Linear], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x)?.silu()?;
    }
    Ok(x)
}

fn batch(truth: &Truth, value: u32, device: &Device) -> Result<Tensor> {
    truth.while_reading(|| Tensor::from_vec(vec![value as f32; 64 * WIDTH], (64, WIDTH), device))
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, device);
    let layers: Vec<_> =
        truth.while_loading(|| (0..4).map(|n| linear(WIDTH, WIDTH, build.pp(n))).collect::<Result<_>>())?;
    let mut averaged = truth.while_loading(|| Averaged::new(&layers))?;
    let vars = crate::variables(&weights);
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.clone(), 1e-3))?;
    for step in 0..6 {
        let (x, target) = (batch(truth, step, device)?, batch(truth, step + 1, device)?);
        let loss = truth.on_the_way_there(|| loss::mse(&forward(&layers, &x)?, &target))?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
        truth.while_updating(|| averaged.update(truth, &layers))?;
    }
    for step in 0..3 {
        let x = batch(truth, step, device)?;
        truth.on_the_way_there(|| forward(&averaged.0, &x)?.mean_all()?.to_scalar::<f32>())?;
    }
    Ok(())
}
