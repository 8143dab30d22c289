//! Deep models whose passes run once or often. A backward pass, or a step of an optimizer, is one repetition of its
//! line. The programs were written from the definition in docs/findings.md before the finding was run on them.

use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, SGD};

use super::{CPU, Program, batch};

pub(crate) const ACCUMULATE: [Program; 3] = [
    ("gradients of each step", gradients_of_each_step),
    ("gradients of each batch, detached", detached_gradients),
    ("steps of two threads", steps_of_two_threads),
];

pub(crate) const DO_NOT: [Program; 6] = [
    ("one backward pass", one_pass),
    ("one backward pass, gradients detached", one_pass_detached),
    ("one step of SGD", one_step_of_sgd),
    ("one step of AdamW", one_step_of_adamw),
    ("one pass in each of two threads", one_pass_in_each_thread),
    ("three steps, all gradients kept", three_steps),
];

fn weights(layers: usize) -> Result<Vec<Var>> {
    (0..layers).map(|_| Var::randn(0f32, 0.1, (128, 128), CPU)).collect()
}

fn loss(weights: &[Var]) -> Result<Tensor> {
    let mut x = batch(64, 128)?;
    for weight in weights {
        x = x.matmul(weight)?.relu()?;
    }
    x.mean_all()
}

fn detached(gradients: &GradStore, weights: &[Var]) -> Vec<Tensor> {
    weights.iter().filter_map(|weight| Some(gradients.get(weight)?.detach())).collect()
}

fn gradients_of_each_step() -> Result<()> {
    let (weights, mut all) = (weights(3)?, Vec::new());
    for _step in 0..12 {
        all.push(loss(&weights)?.backward()?); // <- gradients of each step
    }
    Ok(())
}

fn detached_gradients() -> Result<()> {
    let (weights, mut all) = (weights(12)?, Vec::new());
    for _batch in 0..10 {
        let gradients = loss(&weights)?.backward()?; // <- gradients of each batch, detached
        all.push(detached(&gradients, &weights));
    }
    Ok(())
}

fn steps_of_two_threads() -> Result<()> {
    std::thread::scope(|threads| {
        let worker = || -> Result<Vec<_>> {
            let (weights, mut all) = (weights(4)?, Vec::new());
            for _step in 0..12 {
                let gradients = loss(&weights)?.backward()?; // <- steps of two threads
                all.push(detached(&gradients, &weights));
            }
            Ok(all)
        };
        let both = [threads.spawn(worker), threads.spawn(worker)];
        let all: Result<Vec<_>> = both.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        all.map(drop)
    })
}

fn one_pass() -> Result<()> {
    let weights = weights(16)?;
    loss(&weights)?.backward().map(drop)
}

fn one_pass_detached() -> Result<()> {
    let weights = weights(24)?;
    let gradients = loss(&weights)?.backward()?;
    drop(detached(&gradients, &weights));
    Ok(())
}

fn one_step_of_sgd() -> Result<()> {
    let weights = weights(16)?;
    SGD::new(weights.clone(), 0.1)?.backward_step(&loss(&weights)?)
}

fn one_step_of_adamw() -> Result<()> {
    let weights = weights(16)?;
    let mut optimizer = AdamW::new(weights.clone(), ParamsAdamW::default())?;
    let gradients = loss(&weights)?.backward()?;
    optimizer.step(&gradients)
}

fn one_pass_in_each_thread() -> Result<()> {
    std::thread::scope(|threads| {
        let worker = || -> Result<f32> {
            let weights = weights(16)?;
            let gradients = loss(&weights)?.backward()?;
            gradients.get(&weights[0]).expect("it has one").sum_all()?.to_dtype(DType::F32)?.to_scalar()
        };
        let both = [threads.spawn(worker), threads.spawn(worker)];
        both.into_iter().try_for_each(|thread| thread.join().expect("no panic").map(drop))
    })
}

fn three_steps() -> Result<()> {
    let (weights, mut all) = (weights(10)?, Vec::new());
    for _step in 0..3 {
        all.push(loss(&weights)?.backward()?);
    }
    Ok(())
}
