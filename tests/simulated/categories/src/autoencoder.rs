//! A variational autoencoder: momentum and clipping by hand, an evaluation after each epoch, collected results.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Linear, VarBuilder, VarMap, linear, ops};
use memtrace::Category::Gradient;

use crate::truth::Truth;

const PIXELS: usize = 784;
const HIDDEN: usize = 512;
const CODE: usize = 64;
const BATCH: usize = 128;

struct Autoencoder {
    encoder: Linear,
    mean: Linear,
    spread: Linear,
    decoder: Linear,
    out: Linear,
}

impl Autoencoder {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            encoder: linear(PIXELS, HIDDEN, build.pp("encoder"))?,
            mean: linear(HIDDEN, CODE, build.pp("mean"))?,
            spread: linear(HIDDEN, CODE, build.pp("spread"))?,
            decoder: linear(CODE, HIDDEN, build.pp("decoder"))?,
            out: linear(HIDDEN, PIXELS, build.pp("out"))?,
        })
    }

    fn encode(&self, images: &Tensor) -> Result<(Tensor, Tensor)> {
        let hidden = self.encoder.forward(images)?.relu()?;
        Ok((self.mean.forward(&hidden)?, self.spread.forward(&hidden)?))
    }

    fn decode(&self, code: &Tensor) -> Result<Tensor> {
        ops::sigmoid(&self.out.forward(&self.decoder.forward(code)?.relu()?)?)
    }

    /// The reconstructed images, and the loss.
    fn loss(&self, images: &Tensor) -> Result<(Tensor, Tensor)> {
        let (mean, spread) = self.encode(images)?;
        let noise = mean.randn_like(0., 1.)?;
        let code = (&mean + ((&spread * 0.5)?.exp()? * noise)?)?;
        let copies = self.decode(&code)?;
        let count = images.dim(0)? as f64;
        let difference = ((&copies - images)?.sqr()?.sum_all()? / count)?;
        let divergence = (((&spread + 1.)? - mean.sqr()?)? - spread.exp()?)?.sum_all()?;
        let loss = (difference + (divergence * (-0.5 / count))?)?;
        Ok((copies, loss))
    }
}

/// The first gradients allocate the velocities.
struct Momentum {
    vars: Vec<Var>,
    velocities: Vec<Option<Tensor>>,
}

impl Momentum {
    fn new(weights: &VarMap) -> Self {
        let by_name: BTreeMap<String, Var> =
            weights.data().lock().expect("no thread panicked").clone().into_iter().collect();
        let vars: Vec<Var> = by_name.into_values().collect();
        Self { velocities: vec![None; vars.len()], vars }
    }

    fn step(&mut self, gradients: &GradStore, rate: f64) -> Result<()> {
        for (var, velocity) in self.vars.iter().zip(&mut self.velocities) {
            let Some(gradient) = gradients.get(var) else { continue };
            let next = match velocity.take() {
                Some(velocity) => ((velocity * 0.9)? + gradient)?.detach(),
                None => gradient.copy()?.detach(),
            };
            var.set(&(var.as_detached_tensor() - (&next * rate)?)?)?;
            *velocity = Some(next);
        }
        Ok(())
    }
}

/// Scales all gradients so that their norm is at most `most`.
fn clip(truth: &Truth, gradients: &mut GradStore, vars: &[Var], most: f64) -> Result<()> {
    let mut sum = 0.;
    for gradient in vars.iter().filter_map(|var| gradients.get(var)) {
        sum += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
    }
    let scale = (most / (sum.sqrt() + 1e-6)).min(1.);
    for var in vars {
        if let Some(gradient) = gradients.remove(var) {
            let clipped = (gradient * scale)?.detach();
            truth.is(&clipped, Gradient);
            gradients.insert(var, clipped);
        }
    }
    Ok(())
}

fn evaluate(model: &Autoencoder, images: &Tensor) -> Result<(Tensor, f32)> {
    let (copies, loss) = model.loss(images)?;
    Ok((copies.detach(), loss.to_scalar()?))
}

fn epoch(truth: &Truth, model: &Autoencoder, optimizer: &mut Momentum, images: &Tensor) -> Result<Vec<Tensor>> {
    let mut losses = Vec::new();
    let count = images.dim(0)?;
    for first in 0..count / BATCH {
        let batch = truth.while_reading(|| {
            let chosen: Vec<u32> = (0..BATCH).map(|n| ((first + 3 * n) % count) as u32).collect();
            images.index_select(&Tensor::from_vec(chosen, BATCH, images.device())?, 0)
        })?;
        let (_, loss) = truth.on_the_way_there(|| model.loss(&batch))?;
        let mut gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &optimizer.vars);
        truth.while_updating(|| clip(truth, &mut gradients, &optimizer.vars, 1.))?;
        truth.while_updating(|| optimizer.step(&gradients, 1e-3))?;
        truth.is_none_of_them(&loss);
        losses.push(loss.detach());
    }
    Ok(losses)
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let model = truth.while_loading(|| Autoencoder::new(&VarBuilder::from_varmap(&weights, DType::F32, device)))?;
    let mut optimizer = Momentum::new(&weights);
    let images = truth.while_reading(|| Tensor::from_vec(vec![0.5f32; 512 * PIXELS], (512, PIXELS), device))?;
    let others = truth.while_reading(|| Tensor::from_vec(vec![0.25f32; 192 * PIXELS], (192, PIXELS), device))?;
    let (mut losses, mut copies, mut history) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        losses.extend(epoch(truth, &model, &mut optimizer, &images)?);
        let (copy, loss) = truth.on_the_way_there(|| evaluate(&model, &others))?;
        truth.is_none_of_them(&copy);
        copies.push(copy);
        history.push(loss);
    }
    // Generates images from new codes.
    let codes = truth.while_reading(|| Tensor::randn(0f32, 1., (16, CODE), device))?;
    let made = truth.on_the_way_there(|| Ok::<_, candle_core::Error>(model.decode(&codes)?.detach()))?;
    truth.is_none_of_them(&made);
    assert_eq!((losses.len(), copies.len(), history.len()), (12, 3, 3));
    Ok(())
}
