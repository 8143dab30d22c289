//! Contrastive learning: an encoder, an encoder that follows it slowly, a queue of what the latter made of earlier batches, data that is
//! rotated first, and gradient descent with momentum.

use std::collections::VecDeque;

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::ops;
use memtrace::Category::{Input, OptimizerState, Parameter};

use crate::truth::Truth;

const BATCH: usize = 32;
const FEATURES: usize = 96;
const CODE: usize = 48;
const QUEUE: usize = 3;

fn embed(weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for weight in weights {
        x = x.matmul(weight)?.tanh()?;
    }
    Ok(x)
}

/// In other axes.
fn rotated(truth: &Truth, axes: &Tensor, x: &Tensor) -> Result<Tensor> {
    let x = x.matmul(axes)?;
    truth.is(&x, Input);
    Ok(x)
}

pub(crate) fn learn(truth: &Truth, device: &Device) -> Result<()> {
    let axes = truth.while_reading(|| Tensor::randn(0f32, 1., (FEATURES, FEATURES), device))?;
    let new = |shape: (usize, usize)| Var::randn(0f32, 0.1, shape, device);
    let vars = truth.while_loading(|| Ok::<_, candle_core::Error>([new((FEATURES, 64))?, new((64, CODE))?]))?;
    let fast = vars.clone().map(Var::into_inner);
    let mut slow: Vec<Tensor> =
        truth.while_loading(|| fast.iter().map(|weight| Ok(weight.copy()?.detach())).collect::<Result<_>>())?;
    truth.are_parameters(fast.iter().chain(&slow));
    let (mut momenta, mut queue) = (vec![None::<Tensor>; 2], VecDeque::new());
    for _ in 0..6 {
        let batch = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, FEATURES), device))?;
        let batch = truth.while_reading(|| rotated(truth, &axes, &batch))?;
        let keys = truth.on_the_way_there(|| embed(&slow, &batch))?;
        queue.push_back(keys);
        let loss = truth.on_the_way_there(|| {
            let all = Tensor::cat(&queue.iter().collect::<Vec<_>>(), 0)?;
            let likeness = embed(&fast, &batch)?.matmul(&all.t()?)?;
            ops::log_softmax(&likeness, D::Minus1)?.mean_all()?.neg()
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| {
            for (var, momentum) in vars.iter().zip(&mut momenta) {
                let Some(gradient) = gradients.get(var).map(Tensor::detach) else { continue };
                let next = match momentum.take() {
                    Some(momentum) => ((momentum * 0.9)? + gradient)?,
                    None => gradient,
                };
                var.set(&(var.as_detached_tensor() - (&next * 0.1)?)?)?;
                truth.is(&next, OptimizerState);
                *momentum = Some(next);
            }
            for (old, new) in slow.iter_mut().zip(&fast) {
                *old = ((&*old * 0.99)? + (new.detach() * 0.01)?)?;
                truth.is(old, Parameter);
            }
            Ok::<_, candle_core::Error>(())
        })?;
        if queue.len() == QUEUE {
            queue.pop_front();
        }
    }
    Ok(())
}
