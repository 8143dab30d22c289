//! Training steps of a perceptron and of ResNet-50 with AdamW.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};

#[path = "../../../../examples/resnet/model.rs"]
mod model;

const STEPS: usize = 2;

/// Makes one training step each time it is called.
pub(crate) type Step = Box<dyn FnMut() -> Result<()>>;

pub(crate) fn mlp(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    train(mlp_step(device)?, last)
}

pub(crate) fn resnet(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    train(resnet_step(device)?, last)
}

pub(crate) fn mlp_step(device: &Device) -> Result<Step> {
    let vars = VarMap::new();
    let builder = VarBuilder::from_varmap(&vars, DType::F32, device);
    let hidden = candle_nn::linear(784, 512, builder.pp("hidden"))?;
    let head = candle_nn::linear(512, 10, builder.pp("head"))?;
    let rows = Tensor::randn(0f32, 1., (64, 784), device)?;
    let labels = Tensor::zeros(64, DType::U32, device)?;
    step(&vars, move || candle_nn::loss::cross_entropy(&head.forward(&hidden.forward(&rows)?.gelu()?)?, &labels))
}

pub(crate) fn resnet_step(device: &Device) -> Result<Step> {
    let vars = VarMap::new();
    let network = model::ResNet50::new(VarBuilder::from_varmap(&vars, DType::F32, device))?;
    let images = Tensor::randn(0f32, 1., (2, 3, 64, 64), device)?;
    let labels = Tensor::zeros(2, DType::U32, device)?;
    step(&vars, move || candle_nn::loss::cross_entropy(&network.forward(&images)?, &labels))
}

fn step(vars: &VarMap, loss: impl Fn() -> Result<Tensor> + 'static) -> Result<Step> {
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-3)?;
    Ok(Box::new(move || optimizer.backward_step(&loss()?)))
}

fn train(mut step: Step, last: &mut dyn FnMut()) -> Result<()> {
    for at in 1..=STEPS {
        if at == STEPS {
            last();
        }
        step()?;
    }
    Ok(())
}
