//! A custom optimizer whose state is variables, created up front and updated in place.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Linear, VarBuilder, VarMap, linear};

use crate::truth::Truth;

struct Moments {
    var: Var,
    first: Var,
    second: Var,
}

struct Averages(Vec<Moments>);

impl Averages {
    fn new(vars: Vec<Var>) -> Result<Self> {
        let moments = |var: Var| {
            let first = Var::zeros(var.shape(), var.dtype(), var.device())?;
            let second = Var::from_tensor(&first.zeros_like()?)?;
            Ok(Moments { var, first, second })
        };
        Ok(Self(vars.into_iter().map(moments).collect::<Result<_>>()?))
    }

    fn apply(&self, gradients: &GradStore) -> Result<()> {
        for Moments { var, first, second } in &self.0 {
            let Some(g) = gradients.get(var) else { continue };
            let m = ((first.as_tensor() * 0.9)? + (g * 0.1)?)?;
            let v = ((second.as_tensor() * 0.999)? + (g.sqr()? * 0.001)?)?;
            let change = (&m / (v.sqrt()? + 1e-8)?)?;
            first.set(&m)?;
            second.set(&v)?;
            var.set(&(var.as_tensor() - (change * 0.001)?)?)?;
        }
        Ok(())
    }
}

fn forward(layers: &[Linear], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x)?.gelu()?;
    }
    Ok(x)
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let layers = truth.while_loading(|| {
        let build = VarBuilder::from_varmap(&weights, DType::F32, device);
        (0..4).map(|n| linear(512, 512, build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let vars = crate::variables(&weights);
    let averages = truth.while_updating(|| Averages::new(vars.clone()))?;
    for step in 0..5u32 {
        let batch = truth.while_reading(|| Tensor::from_vec(vec![step as f32; 64 * 512], (64, 512), device))?;
        let loss = truth.on_the_way_there(|| forward(&layers, &batch)?.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| averages.apply(&gradients))?;
    }
    Ok(())
}
