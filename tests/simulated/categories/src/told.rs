//! One large linear layer with candle's SGD and its `backward_step`, which hides the start of the optimizer's step.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Optimizer, SGD, VarBuilder, VarMap, linear};

use crate::truth::Truth;

const WIDTH: usize = 2048;

/// An optimizer that reports the start of its step.
struct Told<'a> {
    truth: &'a Truth,
    vars: Vec<Var>,
    inner: SGD,
}

impl<'a> Optimizer for Told<'a> {
    type Config = (&'a Truth, f64);

    fn new(vars: Vec<Var>, (truth, rate): Self::Config) -> Result<Self> {
        Ok(Self { truth, vars: vars.clone(), inner: SGD::new(vars, rate)? })
    }

    fn step(&mut self, gradients: &GradStore) -> Result<()> {
        self.truth.are_gradients(gradients, &self.vars);
        self.truth.while_updating(|| self.inner.step(gradients))
    }

    fn learning_rate(&self) -> f64 {
        self.inner.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.inner.set_learning_rate(rate);
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let layer = truth.while_loading(|| linear(WIDTH, WIDTH, VarBuilder::from_varmap(&weights, DType::F32, device)))?;
    let mut optimizer = Told::new(crate::variables(&weights), (truth, 0.1))?;
    let batch = truth.while_reading(|| Tensor::from_vec(vec![1f32; 32 * WIDTH], (32, WIDTH), device))?;
    for _ in 0..3 {
        let loss = truth.on_the_way_there(|| layer.forward(&batch)?.sqr()?.mean_all())?;
        truth.on_the_way_back(|| optimizer.backward_step(&loss))?;
    }
    Ok(())
}
