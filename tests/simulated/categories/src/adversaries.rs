//! A generator and a critic of convolutions. The critic's optimizer is the program's own and keeps the first gradient as its
//! momentum; the generator's is AdamW. The generator's graph lives over the critic's backward pass.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor, TensorId, Var};
use candle_nn::loss::binary_cross_entropy_with_logit;
use candle_nn::{AdamW, Optimizer};
use memtrace::Category::OptimizerState;

use crate::truth::Truth;

const BATCH: usize = 8;
const NOISE: usize = 32;

fn weights(truth: &Truth, shapes: &[&[usize]], device: &Device) -> Result<Vec<Var>> {
    let vars: Vec<Var> = truth
        .while_loading(|| shapes.iter().map(|shape| Var::randn(0f32, 0.1, *shape, device)).collect::<Result<_>>())?;
    truth.are_parameters(vars.iter().map(Var::as_tensor));
    Ok(vars)
}

/// Images from noise.
fn generate(vars: &[Var], noise: &Tensor) -> Result<Tensor> {
    let [first, second] = vars else { panic!("a generator has two layers") };
    let small = noise.matmul(first)?.relu()?.reshape((BATCH, 16, 8, 8))?;
    small.upsample_nearest2d(16, 16)?.conv2d(second, 1, 1, 1, 1)?.tanh()
}

/// How real they look.
fn judge(vars: &[Var], images: &Tensor) -> Result<Tensor> {
    let [first, second, last] = vars else { panic!("a critic has three layers") };
    let seen = images.conv2d(first, 1, 2, 1, 1)?.relu()?.conv2d(second, 1, 2, 1, 1)?.relu()?;
    seen.flatten_from(1)?.matmul(last)
}

/// Gradient descent with momentum.
struct Momentum {
    vars: Vec<Var>,
    momenta: HashMap<TensorId, Tensor>,
}

impl Momentum {
    fn apply(&mut self, truth: &Truth, gradients: &GradStore) -> Result<()> {
        for var in &self.vars {
            let Some(gradient) = gradients.get(var).map(Tensor::detach) else { continue };
            let momentum = match self.momenta.remove(&var.id()) {
                Some(momentum) => ((momentum * 0.9)? + gradient)?,
                None => gradient,
            };
            var.set(&(var.as_tensor() - (&momentum * 0.01)?)?)?;
            truth.is(&momentum, OptimizerState);
            self.momenta.insert(var.id(), momentum);
        }
        Ok(())
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let images = truth.while_reading(|| Tensor::rand(0f32, 1., (32, 3, 16, 16), device)?.affine(2., -1.))?;
    let labels = |value: f32| truth.while_reading(|| Tensor::full(value, (BATCH, 1), device));
    let (real, made_up) = (labels(0.9)?, labels(0.)?);
    let generator = weights(truth, &[&[NOISE, 1024], &[3, 16, 3, 3]], device)?;
    let critic = weights(truth, &[&[16, 3, 3, 3], &[32, 16, 3, 3], &[512, 1]], device)?;
    let mut of_generator = truth.while_updating(|| AdamW::new_lr(generator.clone(), 2e-4))?;
    let mut of_critic = Momentum { vars: critic.clone(), momenta: HashMap::new() };
    for step in 0..6 {
        let batch = images.narrow(0, BATCH * (step % 4), BATCH)?;
        let noise = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, NOISE), device))?;
        let made = truth.on_the_way_there(|| generate(&generator, &noise))?;
        let loss = truth.on_the_way_there(|| {
            let of_real = binary_cross_entropy_with_logit(&judge(&critic, &batch)?, &real)?;
            of_real + binary_cross_entropy_with_logit(&judge(&critic, &made.detach())?, &made_up)?
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &critic);
        truth.while_updating(|| of_critic.apply(truth, &gradients))?;
        drop((loss, gradients));

        let loss = truth.on_the_way_there(|| binary_cross_entropy_with_logit(&judge(&critic, &made)?, &real))?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &generator);
        truth.are_gradients(&gradients, &critic);
        truth.while_updating(|| of_generator.step(&gradients))?;
    }
    Ok(())
}
