//! A custom optimizer whose state is created with a variable's first gradient and replaced in each step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, TensorId, Var};
use candle_nn::{Linear, VarBuilder, VarMap, linear};
use memtrace::Category::OptimizerState;

use crate::truth::Truth;

#[derive(Default)]
struct Lazy {
    first: HashMap<TensorId, Tensor>,
    second: HashMap<TensorId, Tensor>,
}

impl Lazy {
    fn apply(&mut self, truth: &Truth, vars: &[Var], gradients: &GradStore) -> Result<()> {
        for var in vars {
            let Some(g) = gradients.get(var) else { continue };
            let m = moment(truth, &mut self.first, var)?;
            let v = moment(truth, &mut self.second, var)?;
            *m = ((&*m * 0.9)? + (g * 0.1)?)?;
            *v = ((&*v * 0.999)? + (g.sqr()? * 0.001)?)?;
            truth.is(m, OptimizerState);
            truth.is(v, OptimizerState);
            let change = (&*m / (v.sqrt()? + 1e-8)?)?;
            var.set(&(var.as_tensor() - (change * 0.001)?)?)?;
        }
        Ok(())
    }
}

/// The variable's moment, initially zeros.
fn moment<'a>(truth: &Truth, moments: &'a mut HashMap<TensorId, Tensor>, var: &Var) -> Result<&'a mut Tensor> {
    Ok(match moments.entry(var.id()) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let zeros = Tensor::zeros(var.shape(), var.dtype(), var.device())?;
            truth.is(&zeros, OptimizerState);
            entry.insert(zeros)
        }
    })
}

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
        (0..4).map(|n| linear(512, 512, build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let vars = crate::variables(&weights);
    let mut optimizer = Lazy::default();
    for step in 0..5u32 {
        let batch = truth.while_reading(|| Tensor::from_vec(vec![step as f32; 64 * 512], (64, 512), device))?;
        let loss = truth.on_the_way_there(|| forward(&layers, &batch)?.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.apply(truth, &vars, &gradients))?;
    }
    Ok(())
}
