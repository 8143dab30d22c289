//! A layer with its own running statistics, which each pass replaces; batches are selected from a data set on the GPU,
//! for training and for evaluation.

use std::cell::RefCell;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{Linear, Optimizer, SGD, VarBuilder, VarMap, linear};
use memtrace::Category::{Input, Parameter};

use crate::truth::Truth;

const WIDTH: usize = 512;

/// Subtracts the mean of all previous batches.
struct Centre<'a> {
    truth: &'a Truth,
    mean: RefCell<Tensor>,
}

impl Module for Centre<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mean = ((&*self.mean.borrow() * 0.9)? + (x.detach() * 0.1)?)?;
        self.truth.is(&mean, Parameter);
        let centred = x - &mean;
        *self.mean.borrow_mut() = mean;
        centred
    }
}

struct Model<'a> {
    centre: Centre<'a>,
    layer: Linear,
}

impl Module for Model<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(&self.centre.forward(x)?)
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, device);
    let layer = truth.while_loading(|| linear(WIDTH, WIDTH, build))?;
    let mean = truth.while_loading(|| Tensor::zeros((64, WIDTH), DType::F32, device))?;
    let model = Model { centre: Centre { truth, mean: RefCell::new(mean) }, layer };
    let data = truth.while_reading(|| Tensor::randn(0f32, 1., (640, WIDTH), device))?;
    let mut optimizer = SGD::new(crate::variables(&weights), 0.1)?;
    let batch = |step: u32| {
        let order = truth.while_reading(|| Tensor::arange(step * 64, step * 64 + 64, device))?;
        truth.is(&order, Input);
        truth.while_reading(|| data.index_select(&order, 0))
    };
    for step in 0..8 {
        let x = batch(step)?;
        let loss = truth.on_the_way_there(|| model.forward(&x)?.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &crate::variables(&weights));
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    for step in 0..8 {
        let x = batch(step)?;
        truth.on_the_way_there(|| model.layer.forward(&x)?.sum_all()?.to_scalar::<f32>())?;
    }
    Ok(())
}
