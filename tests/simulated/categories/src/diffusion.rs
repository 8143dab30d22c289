//! A diffusion model: a small U-Net of convolutions that learns to remove noise, an average of its weights (EMA) that draws
//! samples, and a checkpoint of them.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap, loss};
use memtrace::Category::Parameter;

use crate::truth::Truth;

const BATCH: usize = 4;
const SIDE: usize = 8;
const SHAPES: [(&str, [usize; 4]); 5] = [
    ("in", [16, 3, 3, 3]),
    ("down", [32, 16, 3, 3]),
    ("middle", [32, 32, 3, 3]),
    ("up", [16, 48, 3, 3]),
    ("out", [3, 16, 3, 3]),
];

/// The noise in the images.
fn denoise(weights: &[Tensor], images: &Tensor, time: f64) -> Result<Tensor> {
    let [first, down, middle, up, out] = weights else { panic!("a U-Net has five layers") };
    let wide = (images.conv2d(first, 1, 1, 1, 1)?.silu()? + time)?;
    let narrow = wide.conv2d(down, 1, 2, 1, 1)?.silu()?.conv2d(middle, 1, 1, 1, 1)?.silu()?;
    let joined = Tensor::cat(&[&narrow.upsample_nearest2d(SIDE, SIDE)?, &wide], 1)?;
    joined.conv2d(up, 1, 1, 1, 1)?.silu()?.conv2d(out, 1, 1, 1, 1)
}

struct Average(Vec<Tensor>);

impl Average {
    fn of(truth: &Truth, weights: &[Tensor]) -> Result<Self> {
        let copies = weights.iter().map(|weight| Ok(weight.copy()?.detach())).collect::<Result<Vec<_>>>()?;
        truth.are_parameters(&copies);
        Ok(Self(copies))
    }

    fn follow(&mut self, truth: &Truth, weights: &[Tensor]) -> Result<()> {
        for (old, new) in self.0.iter_mut().zip(weights) {
            *old = ((&*old * 0.9)? + (new.detach() * 0.1)?)?;
            truth.is(old, Parameter);
        }
        Ok(())
    }

    fn sample(&self, truth: &Truth, device: &Device) -> Result<Tensor> {
        let mut images = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, 3, SIDE, SIDE), device))?;
        truth.on_the_way_there(|| {
            let mut steps = Vec::new();
            for time in 0..4 {
                images = (&images - (denoise(&self.0, &images, f64::from(time))? * 0.25)?)?;
                steps.push(images.clone());
            }
            Tensor::stack(&steps, 0)?.mean_all()
        })
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let images = truth.while_reading(|| Tensor::rand(0f32, 1., (BATCH, 3, SIDE, SIDE), device))?;
    let map = VarMap::new();
    let build = VarBuilder::from_varmap(&map, DType::F32, device);
    let weights = truth
        .while_loading(|| SHAPES.iter().map(|(name, shape)| build.get(shape, name)).collect::<Result<Vec<_>>>())?;
    truth.are_parameters(&weights);
    let mut average = truth.while_loading(|| Average::of(truth, &weights))?;
    let vars = crate::variables(&map);
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.clone(), 1e-3))?;
    let checkpoint = std::env::temp_dir().join(format!("diffusion-{}.safetensors", std::process::id()));
    for step in 0..6u32 {
        let noise = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, 3, SIDE, SIDE), device))?;
        let share = f64::from(step + 1) / 8.;
        let loss = truth.on_the_way_there(|| {
            let noisy = ((&images * (1. - share))? + (&noise * share)?)?;
            loss::mse(&denoise(&weights, &noisy, share)?, &noise)
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
        truth.while_updating(|| average.follow(truth, &weights))?;
        if step % 2 == 1 {
            average.sample(truth, device)?;
            truth.while_saving(|| map.save(&checkpoint))?;
        }
    }
    std::fs::remove_file(checkpoint)?;
    Ok(())
}
