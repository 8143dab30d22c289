//! A generative adversarial network (GAN): two networks with an optimizer each, AdamW and SGD.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::loss::binary_cross_entropy_with_logit;
use candle_nn::{AdamW, Linear, Optimizer, SGD, VarBuilder, VarMap, linear};

use crate::truth::Truth;

const BATCH: usize = 64;
const NOISE: usize = 128;
const PIXELS: usize = 1024;

struct Network {
    layers: Vec<Linear>,
    vars: Vec<Var>,
}

impl Network {
    fn new(widths: &[usize], device: &Device) -> Result<Self> {
        let weights = VarMap::new();
        let build = VarBuilder::from_varmap(&weights, DType::F32, device);
        let layer = |(n, pair): (usize, &[usize])| linear(pair[0], pair[1], build.pp(format!("layer{n}")));
        let layers = widths.windows(2).enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Self { layers, vars: crate::variables(&weights) })
    }
}

impl Module for Network {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (last, others) = self.layers.split_last().expect("a network has layers");
        let mut x = x.clone();
        for layer in others {
            x = candle_nn::ops::leaky_relu(&layer.forward(&x)?, 0.2)?;
        }
        last.forward(&x)
    }
}

struct Game {
    generator: Network,
    critic: Network,
    ones: Tensor,
    zeros: Tensor,
}

impl Game {
    /// The critic's pass, without the generator's graph.
    fn critic_loss(&self, real: &Tensor, noise: &Tensor) -> Result<Tensor> {
        let made = self.generator.forward(noise)?.detach();
        let of_real = binary_cross_entropy_with_logit(&self.critic.forward(real)?, &self.ones)?;
        let of_made = binary_cross_entropy_with_logit(&self.critic.forward(&made)?, &self.zeros)?;
        of_real + of_made
    }

    fn generator_loss(&self, noise: &Tensor) -> Result<Tensor> {
        let made = self.generator.forward(noise)?;
        binary_cross_entropy_with_logit(&self.critic.forward(&made)?, &self.ones)
    }

    fn backward(&self, truth: &Truth, loss: &Tensor) -> Result<GradStore> {
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &self.generator.vars);
        truth.are_gradients(&gradients, &self.critic.vars);
        Ok(gradients)
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let generator = truth.while_loading(|| Network::new(&[NOISE, 512, 512, PIXELS], device))?;
    let critic = truth.while_loading(|| Network::new(&[PIXELS, 512, 256, 1], device))?;
    let label = |value: f32| truth.while_reading(|| Tensor::full(value, (BATCH, 1), device));
    let game = Game { generator, critic, ones: label(1.)?, zeros: label(0.)? };
    let mut of_generator = truth.while_updating(|| AdamW::new_lr(game.generator.vars.clone(), 2e-4))?;
    let mut of_critic = truth.while_updating(|| SGD::new(game.critic.vars.clone(), 0.01))?;
    for step in 0..5u32 {
        let real =
            truth.while_reading(|| Tensor::from_vec(vec![step as f32; BATCH * PIXELS], (BATCH, PIXELS), device))?;
        let noise = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, NOISE), device))?;
        let loss = truth.on_the_way_there(|| game.critic_loss(&real, &noise))?;
        let gradients = game.backward(truth, &loss)?;
        truth.while_updating(|| of_critic.step(&gradients))?;

        let loss = truth.on_the_way_there(|| game.generator_loss(&noise))?;
        let gradients = game.backward(truth, &loss)?;
        truth.while_updating(|| of_generator.step(&gradients))?;
    }
    Ok(())
}
